package pipeline

type port struct {
	up      bool
	blocked []bool // by port: a partition stops frames to that port; nil means no partition
	PortCounters
}

// received counts a packet of n bytes that has come in and is not encoded.
func (p *port) received(n int) {
	p.RxPackets++
	p.RxBytes += uint64(n)
	p.RxRoCE++
}

// ports is the table of ports: which of them are up, which of them partitions keep apart, and their
// counters.
type ports []port

// allowed reports whether partitions let a frame that came in at port `in` leave through port `to`.
// They stop no frame that the switch made, for which in is -1.
func (p ports) allowed(in, to int) bool {
	return in < 0 || p[in].blocked == nil || !p[in].blocked[to]
}
