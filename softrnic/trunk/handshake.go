package trunk

import (
	"crypto/ecdh"
	"math"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// handshake is what an end knows of the handshake that it makes.
type handshake struct {
	key    *ecdh.PrivateKey // of the handshake; nil: none is made
	public public
	epoch  uint8  // of the last key that the end has made, or of the handshake
	seen   public // the peer's public key that came last, which a hello echoes
	due    clock.Time
	// answered is when a hello was answered last.
	answered clock.Time
	// repeat is when a hello that looks like a repetition may be answered.
	repeat   clock.Time
	renewing bool // the trunk works, and is to get another key
	// stamp is that of the end's last hello, newest that of the peer's last one that was taken.
	stamp, newest int64
}

// noStamp is below the stamps of all hellos.
const noStamp = math.MinInt64

// begin makes a key pair, unless the handshake has one.
func (e *End) begin() {
	if e.shake.key == nil {
		e.shake.key, e.shake.public = pair(e.cfg.Random)
		e.shake.epoch++
	}
}

// call sends the hello of the handshake.
func (e *End) call(now clock.Time, out *Out) {
	if s := e.keys.now; s != nil && !s.proved && e.shake.key == nil {
		// The end has agreed on a key, and the peer has perhaps not.
		e.send(now, &hello{side: e.cfg.Side, epoch: s.in, public: s.own, echo: s.peer}, out)
		return
	}
	e.begin()
	e.send(now, &hello{side: e.cfg.Side, epoch: e.shake.epoch, public: e.shake.public, echo: e.shake.seen}, out)
}

// send sends a hello: inside of the session if the trunk works, else in clear text.
func (e *End) send(now clock.Time, m *hello, out *Out) {
	e.shake.stamp = max(e.shake.stamp+1, e.wall(now))
	m.stamp = e.shake.stamp
	if s := e.keys.sending(); e.state == Up && s != nil {
		d := make([]byte, headerLen+helloLen+tagLen)
		m.append(d[headerLen:headerLen])
		s.seal(&header{version: Version, kind: kindRenew, epoch: s.out, rack: e.id.rack}, d)
		e.stats.Sent++
		out.Datagrams = append(out.Datagrams, d)
		return
	}
	out.Datagrams = append(out.Datagrams, e.id.appendHello(nil, m))
}

// greeted takes a hello that is authentic. inside says that it came inside of the session, so that it is
// no repetition. While the trunk works, another hello in clear text counts for nothing unless it echoes the
// key of the handshake: a peer that has restarted is silent first.
//
// Hellos that were recorded are authentic, too. An older one than the newest that has come is refused, so that
// a flood of them neither displaces the key of the peer nor uses up the answers. One that echoes the key of
// the handshake is new, whatever its stamp: the peer's clock may have been set back before it was started
// again, and then it answers the hellos of this end. If both clocks were set back, a recorded hello makes those of
// both peers look like repetitions; so an end that calls answers one of these in each Interval, and keeps
// nothing of it: the echo of a recorded key completes no handshake.
func (e *End) greeted(now clock.Time, m *hello, inside bool, out *Out) {
	s := e.keys.now
	repeated := !inside && m.stamp <= e.shake.newest
	switch {
	case m.side == e.cfg.Side: // the end's own, thrown back
		e.stats.Refused.Replayed++
	case e.shake.key != nil && m.echo == e.shake.public:
		e.shake.newest = m.stamp
		e.agreed(now, m, out)
	case repeated:
		e.stats.Refused.Replayed++
		if e.state == Calling && now >= e.shake.repeat {
			e.shake.repeat = now.Add(Interval)
			e.begin()
			e.send(now, &hello{side: e.cfg.Side, epoch: e.shake.epoch, public: e.shake.public, echo: m.public}, out)
		}
	case s != nil && !s.proved && m.public == s.peer && m.echo == s.own:
		if e.mayAnswer(now) {
			e.send(now, &hello{side: e.cfg.Side, epoch: s.in, public: s.own, echo: s.peer}, out)
		}
	case !inside && (e.state == Up || s != nil && m.public == s.peer):
		e.stats.Refused.Replayed++
	default:
		e.begin()
		e.shake.seen, e.shake.newest = m.public, m.stamp
		if e.mayAnswer(now) {
			e.send(now, &hello{side: e.cfg.Side, epoch: e.shake.epoch, public: e.shake.public, echo: m.public}, out)
		}
	}
}

func (e *End) mayAnswer(now clock.Time) bool {
	if e.shake.answered != 0 && now.Sub(e.shake.answered) < answerPause {
		return false
	}
	e.shake.answered = max(now, 1)
	return true
}

// agreed ends the handshake: the hello echoes its public key, so it is no repetition, and the peer wants
// this key, too.
func (e *End) agreed(now clock.Time, m *hello, out *Out) {
	near, far := e.shake.public, m.public
	if e.cfg.Side == Far {
		near, far = far, near
	}
	fromNear, fromFar, ok := e.id.agree(e.shake.key, m.public, near, far)
	if !ok {
		e.stats.Refused.Malformed++
		return
	}
	rx, tx := newSealing(fromFar), newSealing(fromNear)
	if e.cfg.Side == Far {
		rx, tx = tx, rx
	}
	if f := e.keys.former; f != nil {
		e.stats.Lost += f.missing()
	}
	e.keys.former = e.keys.now
	if e.keys.former != nil && e.state != Up {
		e.stats.Lost += e.keys.former.missing()
		e.keys.former = nil // nothing of it comes any more
	}
	if e.keys.former != nil {
		e.keys.former.until = clock.Never
	}
	e.keys.now = &session{own: e.shake.public, peer: m.public, in: e.shake.epoch, out: m.epoch, rx: rx, tx: tx}
	e.shake.key, e.shake.seen, e.shake.answered = nil, public{}, max(now, 1)
	e.stats.Keys++
	if e.state != Up {
		e.live.heard = now // that the key is proved may take as long as Silence
	}
	e.on(now, chAgreed)
	e.shake.due, e.live.due = now.Add(Interval), now.Add(Interval) // both are sent here
	s := e.keys.now
	e.send(now, &hello{side: e.cfg.Side, epoch: s.in, public: s.own, echo: s.peer}, out)
	e.probe(now, s, 0, e.state == Up, out)
}

// proved is called when something has come that was sealed with a key.
func (e *End) proved(now clock.Time, s *session) {
	if s != e.keys.now || s.proved {
		return
	}
	s.proved, e.shake.renewing = true, false
	e.live.due = now // so the peer has the proof, too
	if f := e.keys.former; f != nil {
		f.until = now.Add(keepKey)
	}
}

// renew begins a handshake when the key has sealed enough.
func (e *End) renew(now clock.Time, out *Out) {
	s := e.keys.sending()
	if s == nil || s != e.keys.now || s.sent < e.cfg.Renew || e.state != Up {
		return
	}
	if !e.shake.renewing {
		e.shake.renewing, e.shake.due = true, now
	}
}
