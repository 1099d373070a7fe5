package hard

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// takeBack undoes the move of requests that the server will not execute, because it has refused one before them: they count
// as not received, and the client is asked to send them again. They cannot wait for the next shared connection, which may
// belong to another life of the server; when they come again, their lane has to be proven again. It is called for each of
// them, and acts at the last one.
func (l *lane) takeBack(c *pipeline.Ctx) {
	l.m.stats.TakenBack++
	if l.out > 0 {
		return // the others follow at once
	}
	l.psns.rewind(l.window.takeBack())
	l.giveUpHeld() // what is behind them
	l.nakSent = true
	l.sendSequenceNak(c)
}
