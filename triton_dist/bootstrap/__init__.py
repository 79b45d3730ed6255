"""How the processes of a launch find each other, before any kernel runs, and how they learn that one has ended.

``launchers`` read what torchrun, mpirun, srun or a process group says; ``rendezvous`` collects the members;
``key_agreement`` gives them a key that only they have, with which ``authentication`` and ``framing`` verify all further
messages; ``failure_detector`` reports a PE that ends. ``discovery`` does these steps in order and returns a
:class:`~triton_dist.bootstrap.launch.Launch`.
"""
