package serialize

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// takeBack undoes the move of requests that the server will not execute, because it has refused one
// before them: they count as not received, and a sequence NAK makes the client send them again.
// They cannot wait for the next shared connection, which may belong to another incarnation of the
// server; before they move again, their flow must be proven again. takeBack is called for each of
// them, and acts at the last one.
func (l *sequencer) takeBack(c *pipeline.Ctx) {
	l.m.stats.TakenBack++
	if l.out > 0 {
		return // Done is called for the others in the same step
	}
	l.psns.rewind(l.window.takeBack())
	l.giveUpHeld() // the requests behind them
	l.naks.on(evNak)
	l.sendSequenceNak(c)
}
