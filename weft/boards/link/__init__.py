"""What runs on a board: a driver over ``pynq`` behind a framed protocol on stdin and stdout.

It is sent to the board as one zip file (:mod:`weft.boards.zipapp`), so it imports nothing of weft and nothing that a
PYNQ image lacks, and its syntax is that of Python 3.10. The host uses :mod:`.frames`, :mod:`.messages` and
:mod:`.errors` as well.
"""
