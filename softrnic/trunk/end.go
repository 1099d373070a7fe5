package trunk

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Times of the protocol.
const (
	// Interval is the time between two probes, and between two hellos.
	Interval = 100 * time.Millisecond
	// Silence is how long an end hears nothing until it takes the trunk as down. It is long, because on
	// a busy machine the process of a switch may not run for a while.
	Silence = 500 * time.Millisecond
	// answerPause is the shortest time between two answers to hellos.
	answerPause = 20 * time.Millisecond
	// keepKey is how long the former key stays valid for receiving.
	keepKey = time.Second
	// trainWait is how long an end waits for missing pieces of a train if nothing later comes.
	trainWait = 50 * time.Millisecond
)

// renewAfter is how many datagrams a key seals until the ends agree on another one.
const renewAfter = 1 << 32

// Config describes an end.
type Config struct {
	// Rack and Trunk are names, Secret is the rack's; both ends have the same. Side differs.
	Rack, Trunk string
	Secret      Secret
	Side        Side
	// Carrier is the protocol that carries the datagrams, as it is called; "" means UDP.
	Carrier string
	// Random returns random bytes for a private key.
	Random func() [32]byte
	// Wall is the Unix time in nanoseconds when the time of the end was 0.
	Wall int64
	// IPv6 says that the datagrams have headers of IPv6 in place of IPv4. MTU is that of the machine's own
	// link to the peer.
	IPv6 bool
	MTU  int
	// Renew is how many datagrams a key seals; 0 means 2^32.
	Renew uint64
}

// Out collects the datagrams that an end wants to be sent beside those of trains.
type Out struct{ Datagrams [][]byte }

// End is one end of a trunk. Make it with New. It is cut until Switch is called.
type End struct {
	cfg   Config
	id    identity
	state State
	keys  keys
	shake handshake
	live  liveness
	mtu   pathMTU
	pack  packer
	asm   *assembler
	// wait is when the train that is not complete is given out.
	wait  clock.Time
	stats Stats
	// peerVersion is the version of the last datagram of another one; 0: there was none since the peer was
	// heard.
	peerVersion uint8
}

// New makes an end that is cut.
func New(cfg Config) *End {
	if cfg.Renew == 0 {
		cfg.Renew = renewAfter
	}
	e := &End{cfg: cfg, id: identify(cfg.Rack, cfg.Trunk, cfg.Secret)}
	e.asm = e.stats.newAssembler()
	e.mtu.init(cfg.MTU)
	seed := cfg.Random()
	e.shake.epoch = seed[0]
	e.shake.stamp, e.shake.newest = noStamp, noStamp
	return e
}

// on changes the state.
func (e *End) on(now clock.Time, c change) {
	was := e.state
	e.state = next[was][c]
	if e.state == Up && was != Up {
		e.mtu.search(now)
	}
	if e.state != was {
		e.live.due, e.shake.due = now, now
	}
}

// Switch cuts the trunk at this end, or ends that.
func (e *End) Switch(now clock.Time, on bool, out *Out) {
	if !on {
		e.live.peerHears = false
		if s := e.keys.sending(); s != nil && e.state != Off {
			e.probe(now, s, 0, false, out) // so the peer need not wait for Silence
		}
		for _, s := range [...]*session{e.keys.now, e.keys.former} {
			if s != nil {
				s.pause()
			}
		}
		e.on(now, chOff)
		return
	}
	e.on(now, chOn)
}

// Working reports whether frames reach the peer: both ends hear each other.
func (e *End) Working() bool { return e.state == Up && e.live.peerHears }

// Tick is called at Deadline. It appends the datagrams that are due.
func (e *End) Tick(now clock.Time, out *Out) {
	if e.state == Off {
		return
	}
	if e.state != Calling && now.Sub(e.live.heard) > Silence {
		if e.Working() {
			e.stats.Silences++
		}
		e.live.peerHears, e.shake.renewing = false, false
		e.on(now, chSilent)
	}
	e.renew(now, out)
	if (e.state != Up || e.shake.renewing) && now >= e.shake.due {
		e.shake.due = now.Add(Interval)
		e.call(now, out)
	}
	if now >= e.live.due {
		e.live.due = now.Add(Interval)
		if s := e.keys.sending(); s != nil {
			e.probe(now, s, 0, e.state == Up, out)
		}
		if s := e.keys.now; s != nil && s != e.keys.sending() {
			e.probe(now, s, 0, e.state == Up, out)
		}
	}
	if e.state == Up {
		if size := e.mtu.tick(now); size > 0 {
			e.probe(now, e.keys.sending(), size-e.overIP(), true, out)
		}
	}
}

// Deadline returns when Tick, or Begin, must be called.
func (e *End) Deadline() clock.Time {
	if e.state == Off {
		return clock.Never
	}
	at := e.live.due
	if e.state != Up || e.shake.renewing {
		at = clock.Min(at, e.shake.due)
	}
	if e.state == Up {
		at = clock.Min(at, e.mtu.due)
	}
	if e.state != Calling {
		at = clock.Min(at, e.live.heard.Add(Silence+1))
	}
	if e.asm.open {
		at = clock.Min(at, e.wait)
	}
	return at
}

func (e *End) overIP() int {
	if e.cfg.IPv6 {
		return overIPv6
	}
	return overIPv4
}

// TooBig tells the end that the machine's kernel has refused a datagram because it knows that the path
// takes only IP packets of this size.
func (e *End) TooBig(now clock.Time, size int) { e.mtu.tooBig(now, size) }

// Unsent tells the end that the machine's kernel has refused datagrams of the end, of which d is the first.
// The others are of the same train.
func (e *End) Unsent(d []byte, datagrams int) {
	h, ok := parseHeader(d)
	if !ok || h.kind == kindHello || h.counter&paddedBit != 0 {
		return // no counter of a gap
	}
	for _, s := range [...]*session{e.keys.now, e.keys.former} {
		if s != nil && s.out == h.epoch {
			s.unsent += uint64(datagrams)
			return
		}
	}
}

// Dropped counts frames that could not be sent.
func (e *End) Dropped(frames int) { e.stats.QueueDrops += uint64(frames) }

// Pack seals the first frames into a train in the memory of dst, which has room for TrainSize, and returns
// how many it has taken. Packets of a flow become one super-frame if none is longer than limit; 0 means
// none does. If the trunk does not work, it takes none.
func (e *End) Pack(frames []packetio.Frame, limit int, dst []byte) (t Train, taken int) {
	s := e.keys.sending()
	if e.state != Up || s == nil || len(frames) == 0 {
		return t, 0
	}
	piece := e.mtu.good - e.overIP() - Overhead
	p := &e.pack
	p.begin(dst, piece)
	taken = p.pack(frames, limit)
	size := piece + Overhead
	h := header{version: Version, kind: kindData, epoch: s.out, rack: e.id.rack, count: uint8(p.count)}
	for i := range p.count {
		d := p.b[i*size : min((i+1)*size, len(p.b))]
		h.index, h.first = uint8(i), p.first[i]
		s.seal(&h, d)
	}
	e.stats.Sent += uint64(p.count)
	return Train{Data: p.b, Size: size, Datagrams: p.count}, taken
}

// Begin is called before the datagrams that have come are received. Frames that the end has given out become
// invalid. It appends frames of a train for whose rest the end waits no longer.
func (e *End) Begin(now clock.Time, frames *packetio.Batch) {
	e.asm.begin()
	if e.asm.open && now >= e.wait {
		e.asm.finish(frames)
	}
}

// Room reports whether the end can receive another datagram before the next call of Begin.
func (e *End) Room() bool { return e.asm.room() }

// Stats returns what the end has counted and measured.
func (e *End) Stats() Stats {
	s := e.stats
	s.State, s.MTU, s.Started = e.state, e.mtu.good, e.cfg.Wall
	s.Lost += e.keys.missing()
	e.live.measured(&s)
	s.Trouble = e.trouble()
	return s
}
