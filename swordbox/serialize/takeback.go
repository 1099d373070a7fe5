package serialize

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// takeBack undoes the move of requests that the server will not execute, because it has refused an
// earlier one. The requests then count as not received, and a sequence NAK makes the client send
// them again. The switch must not keep them for the next shared connection, which may belong to
// another incarnation of the server: the flow must be proven before its requests move again.
// takeBack is called for each of these requests, and acts at the last one.
func (l *sequencer) takeBack(c *pipeline.Ctx) {
	l.m.stats.TakenBack++
	if l.out > 0 {
		return // Done calls takeBack for the other requests in the same step
	}
	l.psns.rewind(l.window.takeBack())
	l.giveUpHeld() // the held requests follow the ones that are taken back
	l.naks.on(evNak)
	l.sendSequenceNak(c)
}
