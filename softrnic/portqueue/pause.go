package portqueue

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Control handles a pause frame that has come in at a port, and returns true. It returns false for any
// other frame. PFC frames stop the lossless priorities that they name; global pause frames are counted
// alone.
func (b *Bank) Control(now clock.Time, i int, frame []byte) bool {
	if !wire.IsPause(frame) {
		return false
	}
	var f wire.Pause
	switch err := wire.ParsePause(frame, &f); {
	case err != nil:
		b.malformed++
	case f.Global:
		b.globals++
	default:
		for prio := range f.Time {
			if f.Enabled>>prio&1 != 0 {
				b.Pause(now, i, prio, f.Time[prio])
			}
		}
	}
	return true
}

// Pause does what a PFC frame with this time does to one priority of a port: 0 quanta end its pause. A
// lossy priority only counts it.
func (b *Bank) Pause(now clock.Time, i, prio int, quanta uint16) {
	q := &b.ports[i].queues[prio]
	q.stats.RxPause++
	if !b.cfg.Classes[prio].Lossless {
		return
	}
	q.settle(now)
	was := q.until > now
	if quanta > 0 {
		q.heard = now
		q.until = now.Add(b.cfg.Quantum(quanta))
		if !was {
			q.since, q.idle = now, now
			q.stats.RxTransition++
		}
	} else {
		q.until = now
	}
	b.rekey(now, i)
}

// settle adds the time of the present pause to the counter, up to now.
func (q *queue) settle(now clock.Time) {
	if end := clock.Min(now, q.until); end > q.since {
		q.stats.RxDuration += micros(end.Sub(q.since))
		q.since = end
	}
}

// pausePeer begins or ends the pause of a priority at the peer of port i.
func (b *Bank) pausePeer(now clock.Time, i, prio int, on bool) {
	p := &b.ports[i]
	st := &p.queues[prio].stats
	bit := uint8(1) << prio
	p.announce |= bit
	if on {
		p.xoff |= bit
		p.paused[prio] = now
		st.TxTransition++
	} else {
		p.xoff &^= bit
		st.TxDuration += micros(now.Sub(p.paused[prio]))
	}
	b.rekey(now, i)
}

// tellPeer sends a pause frame with the priorities that have changed, and with those whose pause lasts.
func (b *Bank) tellPeer(now clock.Time, i int, out *packetio.Batch) {
	p := &b.ports[i]
	f := wire.Pause{Src: b.cfg.MAC, Enabled: p.announce | p.xoff}
	for prio := range f.Time {
		if p.xoff>>prio&1 != 0 {
			f.Time[prio] = b.cfg.Quanta
		}
		if f.Enabled>>prio&1 != 0 {
			p.queues[prio].stats.TxPause++
		}
	}
	p.announce, p.refresh = 0, clock.Never
	if p.xoff != 0 {
		p.refresh = now.Add(b.cfg.Quantum(b.cfg.Quanta) / 2)
	}
	out.Frames = append(out.Frames, packetio.Frame{Data: f.AppendTo(out.Alloc(f.Len())), Port: i})
}

// watched returns when the watchdog must look at port p next.
func (b *Bank) watched(now clock.Time, p *port) clock.Time {
	at := clock.Never
	for prio := range p.queues {
		q := &p.queues[prio]
		switch {
		case q.storm:
			at = clock.Min(at, q.heard.Add(b.cfg.Watchdog.Restore))
		case q.until > now:
			if found := q.idle.Add(b.cfg.Watchdog.Detect); found < q.until {
				at = clock.Min(at, found)
			}
		}
	}
	return at
}

// watch finds storms at port i, and ends those whose pause frames have stopped.
func (b *Bank) watch(now clock.Time, i int) {
	w := &b.cfg.Watchdog
	if w.Detect == 0 {
		return
	}
	p := &b.ports[i]
	for prio := range p.queues {
		q := &p.queues[prio]
		switch {
		case q.storm && now >= q.heard.Add(w.Restore):
			q.storm = false
			q.idle = now
		case !q.storm && q.until > now && now >= q.idle.Add(w.Detect):
			q.storm = true
			q.stats.Storms++
			if !w.Forward {
				n := b.drain(now, i, prio)
				q.stats.Discarded += uint64(n)
			}
		}
	}
}
