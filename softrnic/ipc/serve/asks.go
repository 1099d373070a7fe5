package serve

// SetAsks says whether an injected fault may refuse posts. If it may, applications wait for the
// daemon's answer to each post, and so do those that attach later.
func (s *Server) SetAsks(on bool) {
	s.pump.shell.Enter()
	defer s.pump.shell.Leave()
	s.pump.asks = on
	for _, p := range s.pump.ports {
		p.ask(on)
	}
}

func (p *port) ask(on bool) {
	v := uint64(0)
	if on {
		v = 1
	}
	p.ctl.Asks.Store(v)
}
