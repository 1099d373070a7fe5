package portqueue

// Usage says how many bytes of a buffer are used: each byte of a queued frame is in exactly one account.
type Usage struct {
	Reserve  int64 `json:"reserve"`
	Shared   int64 `json:"shared"`
	Headroom int64 `json:"headroom"`
	// Own are the bytes of frames that came in at no port.
	Own int64 `json:"own"`
}

// Total returns the bytes of all accounts.
func (u Usage) Total() int64 { return u.Reserve + u.Shared + u.Headroom + u.Own }

// buffer is the packet buffer that the ports share. It charges a frame to the port and priority at
// which it came in, from when it is queued until it has left.
type buffer struct {
	size, own int64
	used      Usage
	// sources has the accounts of the frames that came in at each port.
	sources [][Priorities]Usage
}

// shared returns the size of the shared memory.
func (b *buffer) shared(c *Config) int64 { return max(0, b.size-c.MinBuffer(len(b.sources))) }

// threshold returns how many shared bytes an account, or a lossy egress queue, may have now.
func (b *buffer) threshold(c *Config, k *Class) int64 {
	if k.XOFF > 0 {
		return k.XOFF
	}
	num, den := k.AlphaNum, k.AlphaDen
	if num == 0 || den == 0 {
		num, den = 1, 1
	}
	return max(0, b.shared(c)-b.used.Shared) * num / den
}

// admit charges a frame of n bytes that came in at port `in` (-1: none) with priority k. queued are the
// bytes of its egress queue. It returns false if there is no room.
func (b *buffer) admit(c *Config, in, prio int, n, queued int64) bool {
	k := &c.Classes[prio]
	if in < 0 {
		if b.used.Own+n > b.own {
			return false
		}
		b.used.Own += n
		return true
	}
	u := &b.sources[in][prio]
	free := b.shared(c) - b.used.Shared
	limit := b.threshold(c, k)
	switch {
	case !k.Lossless:
		if n > free || queued+n > limit {
			return false
		}
	case u.Reserve+n <= k.Reserve:
		u.Reserve += n
		b.used.Reserve += n
		return true
	case u.Shared >= limit || n > free: // the frame that reaches the threshold is the last one that is shared
		if u.Headroom+n > k.Headroom {
			return false
		}
		u.Headroom += n
		b.used.Headroom += n
		return true
	}
	u.Shared += n
	b.used.Shared += n
	return true
}

// release returns the n bytes of a frame that has left. Headroom becomes free first, then shared
// memory, then the reserve, so that a part of a frame may be charged to each.
func (b *buffer) release(in, prio int, n int64) {
	if in < 0 {
		b.used.Own -= n
		return
	}
	u := &b.sources[in][prio]
	for _, a := range [...]struct{ of, all *int64 }{{&u.Headroom, &b.used.Headroom}, {&u.Shared, &b.used.Shared}, {&u.Reserve, &b.used.Reserve}} {
		part := min(n, *a.of)
		*a.of -= part
		*a.all -= part
		n -= part
	}
}

// full reports whether the peer of port `in` must pause a lossless priority: its frames use headroom,
// or as much shared memory as they may.
func (b *buffer) full(c *Config, in, prio int) bool {
	u := &b.sources[in][prio]
	return u.Headroom > 0 || u.Shared > 0 && u.Shared >= b.threshold(c, &c.Classes[prio])
}

// low reports whether the peer may go on.
func (b *buffer) low(c *Config, in, prio int) bool {
	u := &b.sources[in][prio]
	k := &c.Classes[prio]
	return u.Headroom == 0 && (u.Shared == 0 || u.Shared+k.XON <= b.threshold(c, k))
}
