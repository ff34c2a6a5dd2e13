# Records one by one from a batch that is open, the compiled half: the twin of `_pure_run.py`. Included by `_speed.pyx`.

@cython.final
cdef class Run:
    """Hands out one by one what is left of an open batch, with no look at anything else, as long as it was allowed to.

    queue: see `Records.step`. left: how many more it may give, 0 ends it; until: the time of the clock at which it is over. handed_out: how many records were
    handed out by it and others, or were about to be; seen: that number when the application asked last, with which it is done. guard: for the Python twin; here a step is whole.
    """

    cdef public object queue
    cdef public Py_ssize_t left
    cdef public double until
    cdef public long long handed_out, seen
    cdef object clock
    cdef long forks
    cdef bint is_making

    def __init__(self, clock, guard=None):
        self.clock = clock
        self.forks = gkafka_forks

    cdef Records reader(self):
        """Of the batch that is read; None: something is to be looked at first."""
        cdef object reader
        if self.left <= 0 or self.queue is None or self.forks != gkafka_forks or self.clock() >= self.until:
            return None
        reader = self.queue.reader
        return <Records> reader if type(reader) is Records else None

    def next(self):
        """The next message. None: there is none, or something is to be looked at that this does not ask for each of a million records."""
        cdef Records reader = self.reader()
        if reader is None:
            return None
        self.left -= 1
        self.seen = self.handed_out
        self.handed_out += 1  # before the step: who takes the partition away looks at it afterwards, and must find what was handed out
        return reader.step(self.queue)

    def several(self, long long max_bytes, most):
        """The next records, so many. None of them where these are more than 100, which are better taken together, where there may be fewer, or where they
        hold more than max_bytes."""
        cdef Records reader = self.reader() if most <= 100 else None
        cdef list messages
        if reader is None:
            return []
        self.seen = self.handed_out
        self.handed_out += 1
        messages = reader.steps(self.queue, most, max_bytes)
        self.left -= len(messages)
        return messages

    def made(self, make, bint tells):
        """What make(message) returns for the next record. The position moves behind the record only after that.

        None where next() gives None; also while another caller is in here, and where the record was taken, or the position moved, while make()
        worked. tells: what make() raises is raised; else None is returned, and whoever asks in another way meets the record again.
        """
        cdef Records reader = None if self.is_making else self.reader()
        cdef Message message
        if reader is None:
            return None
        self.seen = self.handed_out
        message = reader.peek(self.queue)
        if message is None:
            return None
        self.is_making = True
        try:
            thing = make(message)
        except Exception:
            if tells:
                raise
            return None
        finally:
            self.is_making = False
        reader = self.reader()
        if reader is None:
            return None
        self.handed_out += 1
        if not reader.step_to(self.queue, message.offset):
            return None
        self.left -= 1
        return thing
