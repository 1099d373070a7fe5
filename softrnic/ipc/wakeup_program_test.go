package ipc_test

// This file has the model's threads of the program, and its processor.

// poster models poster.post with Control.Ring and Context.consumed.
func (m *model) poster(i int) {
	for range m.posts[i] {
		rung, summed, awake, look, done := m.label("rung"), m.label("summed"), m.label("awake"), m.label("look"), m.label("done")
		if m.ringLate {
			m.when("asleep?", func(s *wakeState) bool { return !s.asleep }, awake)
			m.do("wake the daemon", func(s *wakeState) { s.toDaemon = 1 })
			m.at(awake)
		}
		m.do("publish the tail", func(s *wakeState) { s.tail[i]++ })
		m.when("rings already?", func(s *wakeState) bool { return s.bell[i] }, rung)
		m.do("ring", func(s *wakeState) { s.bell[i] = true })
		m.at(rung)
		m.when("in the summary?", func(s *wakeState) bool { return s.summary }, summed)
		m.do("into the summary", func(s *wakeState) { s.summary = true })
		m.at(summed)
		if !m.ringLate {
			m.when("asleep?", func(s *wakeState) bool { return !s.asleep }, awake)
			m.do("wake the daemon", func(s *wakeState) { s.toDaemon = 1 })
			m.at(awake)
		}
		if m.early {
			m.do("the post returns", func(s *wakeState) { s.ended++ })
			m.private()
			continue
		}
		m.sleeper(i, look, done, func(s *wakeState) bool { return s.head[i] == s.tail[i] }, func(s *wakeState) { s.wait[i] = 1 })
	}
}

// sleeper waits until ready, as consumed and cq.wait do: it takes the channel, publishes that it
// waits, checks ready again, and sleeps.
func (m *model) sleeper(i int, look, done string, ready func(s *wakeState) bool, say func(s *wakeState)) {
	channel := func() { m.do("take the channel", func(s *wakeState) { s.closed[i] = false }) }
	m.at(look)
	m.when("ready?", ready, done) // polling
	if !m.channelLate {
		channel()
	}
	if m.buffered {
		m.do("say that it waits, some time later", func(s *wakeState) { s.buffer[i] = true })
	} else {
		m.do("say that it waits", say)
	}
	if !m.waitLate {
		m.when("ready?", ready, done)
	}
	if m.channelLate {
		channel()
	}
	m.asm.wait("sleep", func(s *wakeState) bool { return s.closed[i] })
	m.jump(look)
	m.at(done)
	m.do("awake", func(s *wakeState) { s.ended++ })
	m.private()
}

// reap waits for all completions.
func (m *model) reap() {
	for range m.posts[0] + m.posts[1] {
		look, done := m.label("look"), m.label("done")
		m.sleeper(2, look, done, func(s *wakeState) bool { return s.cqTail > s.polled }, func(s *wakeState) { s.cqWait = true })
		m.do("poll", func(s *wakeState) { s.polled++ })
		m.private()
	}
}

// listen models Context.listen.
func (m *model) listen() {
	m.at("listen")
	m.asm.wait("read the wake socket", func(s *wakeState) bool { n := s.toProgram; s.toProgram = 0; return n > 0 })
	m.do("wake all", func(s *wakeState) { s.closed = [3]bool{true, true, true} })
	m.jump("listen")
}

// processor executes stores that were delayed, at any time. A sleeper has at most one: Wait.
func (m *model) processor(i int) {
	m.at("store")
	m.asm.wait("make the store", func(s *wakeState) bool {
		b := s.buffer[i]
		s.buffer[i] = false
		if b && i < len(s.wait) {
			s.wait[i] = 1
		} else if b {
			s.cqWait = true
		}
		return b
	})
	m.jump("store")
}
