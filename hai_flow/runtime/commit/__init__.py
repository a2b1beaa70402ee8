"""Group commit: commands are queued by run, decided by the engine and committed, up to 256 runs in one statement.
Nothing else may append to a log. Begin here, then `committer` (the door), `cached_run`, `lanes` and `decider`.

Theory of operation
===================

A run is a log of events; its state is the fold of it. This process keeps states in memory (`cached_run`, `queues`) and
may be wrong about each of them at any time, because other processes commit to the same runs. So nothing here locks a
run, and nothing is taken for granted: a decision is made on the state as this process knows it, and the statement that
commits it says whether that was the state.

**A round.** `Committer.submit` puts a command with its run, and the run into the queue of its lane (a run has always
the same one). While a statement of the lane is under way, more runs queue up; when it returns, the lane takes up to 256
of them. For each, `Decider.entry_of` decides the waiting commands one on top of the other, with `engine.decide`, and
makes one entry of the events. All entries go in one statement. Batches thus grow as the database slows down, and no
timer is needed.

**What is read.** Nothing, as long as this process wins: the state behind a win is the state it had decided. The
`loader` reads where that may not hold: a run that was not in memory, that lost, or that a hint or a heartbeat says
others have moved. It reads the row, the newest snapshot and the log behind it, and the ids and slots that the waiting
commands need. A refusal changes nothing in the database and so can't lose; it is given only on a state that was loaded
after its command came, else the run is loaded first.

**What one statement commits.** For each entry: the run's row (status, `seq`, `version`, `fence`, claim, due time), its
log row, and what belongs to them: commands' ids with their outcomes, pendings, votes, messages, turns, slots, audit,
and the outbox, by which one run acts on another. An entry wins if `version` is still what it was decided on,
and if its holder sent it `fence`, too (streamed chunks: `fence` alone); each wins or loses for itself, and the
statement returns the rows of the winners.

**Who hears, and when.** Only behind the answer of the statement, in `lanes._apply_win`, in this order: the run's
knowledge advances; `committed` listeners get the events (streams show them); callers get their outcomes; `changed`
listeners begin and cancel attempts; `outbox` is told to deliver; `hints` tell other processes. A listener's fault stops
no commit. A run that lost is loaded, and its commands are decided again; after three losses with its row locked.

**If the process dies**

    before the statement arrives        nothing has happened; callers send again, with the same ids
    while it runs, or before its answer it is committed whole or not at all. The same id again finds the stored outcome;
                                        without an id, a caller looks. Streams read the log
    behind the answer, before listeners it is committed. Others learn of it by their polls: what is due, the outbox, the
                                        heartbeat of who holds the run
    while an attempt is performed       its lease ends, a worker claims the run, and the attempt is declared lost first

If only the connection breaks, the outcome is as unknown, and may *still* happen: the fence is raised, which makes it
lose if it comes later, then the run is loaded and its commands are decided again (`CachedRun.doubt`). A batch that is
refused for its data is halved until the culprit is alone (`recovery`).

**What a second process sees.** The row before the statement or behind it, never between, because the statement is its
transaction. If it decides on the row before, its own statement loses. It hears of the commit by a hint, which may be
lost, or by a poll, which may not. It performs nothing of the run unless a statement of its own returned that it holds
it: while the first process holds it, the second may decide, stop or answer it, but begins no attempt."""
