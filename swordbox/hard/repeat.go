package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// mayRepeat asks the words that a duplicate on the own connection touches, if perhaps the server has not executed it yet and
// one of them does not count on it any more, because its NIC tries for longer than words.Config.Budget, or does not count on
// it yet, because the word is younger. A server that may have begun a new life has executed nothing yet. False: not now.
func (l *lane) mayRepeat(c *pipeline.Ctx, own wire.PSN, f *wire.Frame) bool {
	va, n, _ := target(f)
	if !l.s.watch || n == 0 || !f.BTH.Opcode.Is(wire.OpWrite|wire.OpAtomic) || wire.Diff(own, l.acked) < 0 && !l.isSuspect() {
		return true
	}
	m, end := l.m, own.Add(1+l.rest(f))
	m.cover = m.words.Overlapping(m.cover[:0], l.s.index, va, n)
	counted := true
	for _, w := range m.cover {
		counted = counted && l.countedBy(c, w, end)
	}
	if counted {
		return true
	}
	d := m.words.OwnAll(c.Now, l.s.index, va, n)
	if d.Kind == words.Wait {
		m.stats.RepeatsDropped++
		return false
	}
	if !l.ops.room() {
		l.ops.head++ // nobody tells its end, see looseRequest
	}
	op := l.ops.add()
	op.end, op.all, op.decision, op.va, op.n = end, true, d, va, n
	return true
}

// countedBy reports whether a word counts on the operation of the own connection that ends before a PSN.
func (l *lane) countedBy(c *pipeline.Ctx, w *words.Word, end wire.PSN) bool {
	for pos := l.ops.head; pos != l.ops.tail; pos++ {
		op := l.ops.at(pos)
		touches := op.word == w || op.all && op.va <= w.VA+7 && w.VA < op.va+uint64(op.n)
		if op.end == end && touches && w.Counts(c.Now, op.decision) {
			return true
		}
	}
	return false
}
