# Records one by one from a batch that is open, the compiled half: the twin of `_pure_run.py`. Included by `_speed.pyx`.

cdef enum:
    LOOKS = 4  # records that are made between two looks at the time


@cython.final
cdef class Run:
    """Hands out one by one what is left of an open batch, with no look at anything else, as long as it was allowed to.

    queue: see `Records.step`. left: how many more it may give, 0 ends it; until: the time of the clock at which it is over. handed_out: how many records were
    handed out by it and others, or were about to be; seen: that number when the application asked last, with which it is done. guards: for the Python twin; here a step is whole.
    """

    cdef public object queue
    cdef public Py_ssize_t left
    cdef public double until
    cdef public long long handed_out, seen
    cdef object clock
    cdef long forks
    cdef bint is_making

    def __init__(self, clock, guards=None):
        self.clock = clock
        self.forks = gkafka_forks

    cdef bint may_go_on(self):
        return self.left > 0 and self.queue is not None and self.forks == gkafka_forks

    cdef Records reader(self):
        """Of the batch that is read; None: something is to be looked at first. The clock is asked each time: what a member may hand out ends with its
        session, and what the application does between two records nobody knows."""
        cdef object reader
        if not self.may_go_on() or self.clock() >= self.until:
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
        """What make(message) returns for the next record, as several_made() does it; None where next() gives None."""
        cdef object queue = self.queue, thing
        cdef Records reader
        cdef Message message
        cdef Spot before, behind
        if self.is_making:
            self.left = 0
        reader = self.reader()
        if reader is None:
            return None
        self.seen = self.handed_out
        message = reader.peek(queue, &before, &behind)
        if message is None:
            return None
        self.is_making = True
        try:
            thing = make(message)
        except Exception:
            if tells:
                raise
            self.left = 0
            return None
        finally:
            self.is_making = False
        if not self.may_go_on() or not reader.is_at(queue, &before):
            return None
        self.handed_out += 1
        reader.move(queue, &behind, message.offset)
        self.left -= 1
        return thing

    cpdef list several_made(self, make, bint tells, long long max_bytes, Py_ssize_t most):
        """What make(message) returns for each record that several() would give, as far as it goes and time allows. The position moves behind the
        records only after that.

        None of them also while another caller is in here, which ends the run: each would make what the other one does; and where the records were taken, or
        the position moved, while make() worked.
        tells: what make() raises on the first one is raised; else the run ends, and whoever asks in another way meets the record again.
        """
        cdef Records reader
        cdef object queue = self.queue  # that of this reader: others may let the run go on with another partition meanwhile
        cdef list messages, things = []
        if self.is_making:
            self.left = 0
        reader = self.reader() if most <= 100 else None
        if reader is None:
            return things
        self.seen = self.handed_out
        messages = reader.steps(queue, most, max_bytes, stay=True)
        self.is_making = True
        try:
            for message in messages:
                things.append(make(message))
                if not len(things) % LOOKS and self.clock() >= self.until:
                    break
        except Exception:
            if tells and not things:
                raise
            if not things:
                self.left = 0
        finally:
            self.is_making = False
        if not things or not self.may_go_on():
            return []
        self.handed_out += 1
        if not reader.step_to(queue, messages[:len(things)]):
            return []
        self.left -= len(things)
        return things
