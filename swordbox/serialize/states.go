package serialize

import "github.com/rdmalab/rdmalab/swordbox/atomiccache"

// States implements handler.Stater: the states of the sequencers, of the words and of the shared
// connections.
func (m *Machine) States(visit func(table string, entry uint32, state string)) {
	for _, l := range m.flows.list {
		if l == nil {
			continue
		}
		visit("phase", l.index, l.phase.String())
		visit("NAK", l.index, l.naks.String())
		visit("message", l.index, l.msg.String())
		visit("place", l.index, l.placeName())
		visit("answers", l.index, l.window.answersName())
	}
	entry := uint32(0)
	m.words.Each(func(w *atomiccache.Word) bool {
		visit("word", entry, w.State.String())
		entry++
		return true
	})
	entry = 0
	for _, s := range m.servers {
		for _, k := range s.links {
			visit("shared connection", entry, k.conn.State().String())
			entry++
		}
	}
}

// placeName names the place of the flow's requests, and says whether the flow has held requests.
func (l *sequencer) placeName() string {
	switch own := l.place == placeOwn; {
	case own && l.held.n > 0:
		return "own, held"
	case own:
		return "own"
	case l.held.n > 0:
		return "shared, held"
	}
	return "shared"
}

// answersName says whether the window has answers that wait, or READs that are executed again.
func (w *window) answersName() string {
	switch {
	case w.owed > 0:
		return "owed"
	case w.redos > 0:
		return "redoing"
	case w.outstanding() > 0:
		return "inFlight"
	}
	return "done"
}
