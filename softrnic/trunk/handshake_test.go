package trunk

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// carries reports whether frames pass in both directions.
func (r *rig) carries() bool {
	r.take(0)
	r.take(1)
	for side := range r.ends {
		r.send(side, roce(1, 3, 500))
	}
	r.run(time.Millisecond)
	return len(r.take(0)) == 3 && len(r.take(1)) == 3
}

// A switch that restarts gets another key, as soon as its peer has noticed that it is silent.
func TestRestartGetsAnotherKey(t *testing.T) {
	for side := range 2 {
		r := newRig(t)
		r.up()
		was := r.ends[1-side].keys.now
		cfg := config(Side(side))
		cfg.Random = func() [32]byte { return [32]byte{9, byte(side)} }
		r.start(side, cfg)
		r.run(Silence + 2*Interval)
		r.up()
		if !r.carries() || r.ends[1-side].keys.now == was || r.ends[1-side].Stats().Keys != 2 {
			t.Errorf("end %d has restarted: %+v", side, r.ends[1-side].Stats())
		}
	}
}

// Each datagram of the handshake may be lost.
func TestHandshakeWithLoss(t *testing.T) {
	for lost := range 64 { // a bit for each of the first six datagrams
		r := newRig(t)
		n := 0
		r.fate = func(int, []byte) (int, int) {
			if n++; n <= 6 && lost&(1<<(n-1)) != 0 {
				return 0, 0
			}
			return 1, 0
		}
		r.start(0, config(Near))
		r.start(1, config(Far))
		r.run(time.Second)
		if !r.ends[0].Working() || !r.ends[1].Working() || !r.carries() {
			t.Errorf("datagrams %06b are lost: %+v and %+v", lost, r.ends[0].Stats(), r.ends[1].Stats())
		}
	}
}

// Before its counter is used up a key is replaced, without loss, and also if handshakes lose datagrams.
func TestRenewal(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		r := newRig(t)
		for side := range 2 {
			cfg := config(Side(side))
			cfg.Renew = 120
			r.start(side, cfg)
		}
		r.up()
		n := 0
		r.fate = func(_ int, d []byte) (int, int) {
			if h, _ := parseHeader(d); lossy && h.kind != kindData {
				if n++; n%3 == 0 {
					return 0, 0
				}
			}
			return 1, 0
		}
		sent := 0
		for range 150 {
			for side := range 2 {
				r.send(side, roce(2, 7, 900))
			}
			sent += 7
			r.run(10 * time.Millisecond)
			if !r.ends[0].Working() || !r.ends[1].Working() {
				t.Fatalf("the trunk is down: %+v", r.ends[0].Stats())
			}
		}
		for side := range 2 {
			if got := len(r.take(side)); got != sent {
				t.Errorf("lossy %v: %d of %d packets came at end %d: %+v", lossy, got, sent, side, r.ends[side].Stats())
			}
			if s := r.ends[side].Stats(); s.Keys < 3 || s.Refused.Replayed+s.Refused.BadTag > 0 {
				t.Errorf("lossy %v: %+v", lossy, s)
			}
		}
	}
}

// An end that hears nothing for Silence is down, and up again when the network has healed.
func TestSilence(t *testing.T) {
	r := newRig(t)
	r.up()
	dead := map[int]bool{}
	r.fate = func(from int, _ []byte) (int, int) {
		if dead[from] {
			return 0, 0
		}
		return 1, 0
	}
	dead[0], dead[1] = true, true
	r.run(Silence - Interval)
	if !r.ends[0].Working() {
		t.Error("the trunk is down too early")
	}
	r.run(2 * Interval)
	if r.ends[0].Working() || r.ends[1].Working() || r.ends[0].Stats().Trouble == "" {
		t.Error("the trunk is up, though nothing passes")
	}
	if r.ends[0].stats.Silences != 1 || r.ends[1].stats.Silences != 1 {
		t.Errorf("silences %d and %d", r.ends[0].stats.Silences, r.ends[1].stats.Silences)
	}
	dead[0], dead[1] = false, false
	r.run(2 * Interval)
	if !r.carries() {
		t.Errorf("the trunk stays down: %+v", r.ends[0].Stats())
	}
	dead[0] = true // one direction
	r.run(Silence + 2*Interval)
	if r.ends[0].Working() || r.ends[1].Working() {
		t.Error("the trunk is up, though one end hears nothing")
	}
	dead[0] = false
	r.run(2 * Interval)
	if !r.carries() {
		t.Errorf("the trunk stays down: %+v", r.ends[0].Stats())
	}
}

// A trunk that is cut at one end is down at the other at once, and carries frames again afterwards.
func TestCut(t *testing.T) {
	r := newRig(t)
	r.up()
	r.do(0, func(out *Out) { r.ends[0].Switch(r.now, false, out) })
	r.run(time.Millisecond)
	if r.ends[0].Working() || r.ends[1].Working() {
		t.Error("the trunk is up")
	}
	if train, n := r.ends[0].Pack(roce(1, 1, 100), 0, make([]byte, 0, TrainSize)); n != 0 || train.Data != nil {
		t.Error("an end that is cut sends frames")
	}
	r.run(time.Second)
	r.do(0, func(out *Out) { r.ends[0].Switch(r.now, true, out) })
	r.run(2 * Interval)
	if !r.carries() || r.ends[1].stats.Silences != 0 {
		t.Errorf("the trunk stays down, or a cut counts as silence: %+v and %+v", r.ends[0].Stats(), r.ends[1].Stats())
	}
}

// Ends of another rack, with another secret, of another trunk, or of another version do not come up, and
// say why.
func TestStrangers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		count  func(*Refused) uint64
	}{
		"rack":   {func(c *Config) { c.Rack = "other" }, func(r *Refused) uint64 { return r.OtherRack }},
		"secret": {func(c *Config) { c.Secret[0]++ }, func(r *Refused) uint64 { return r.OtherRack }},
		"trunk":  {func(c *Config) { c.Trunk = "leaf0-leaf2" }, func(r *Refused) uint64 { return r.BadTag }},
		"side":   {func(c *Config) { c.Side = Near }, func(r *Refused) uint64 { return r.Replayed }},
	} {
		r := newRig(t)
		cfg := config(Far)
		c.change(&cfg)
		r.start(1, cfg)
		r.run(time.Second)
		s := r.ends[0].Stats()
		if s.State != Calling || c.count(&s.Refused) == 0 || s.Keys > 0 || s.Trouble == "" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	r := newRig(t)
	d := r.ends[1].id.appendHello(nil, &hello{side: Far})
	d[0] = 1<<4 | uint8(kindHello)
	d = d[:len(d)-8] // hellos of version 1 had no stamp
	var out Out
	r.ends[0].Receive(r.now, d, new(packetio.Batch), &out)
	if s := r.ends[0].Stats(); s.Refused.Version != 1 || len(out.Datagrams) > 0 || s.Trouble != "the other end speaks version 1 of the trunk's protocol, and this one version 2: install the same rdmalab on both machines" {
		t.Errorf("version: %+v", s)
	}
}

// What strangers have sent while the trunk worked does not explain why it is down now.
func TestTroubleIsOfNow(t *testing.T) {
	r := newRig(t)
	r.up()
	cfg := config(Far)
	cfg.Rack = "other"
	version := New(cfg).id.appendHello(nil, &hello{side: Far})
	version[0] += 1 << 4
	stranger := func() {
		var out Out
		r.ends[0].Receive(r.now, New(cfg).id.appendHello(nil, &hello{side: Far}), new(packetio.Batch), &out)
	}
	stranger()
	r.ends[0].Receive(r.now, version, new(packetio.Batch), new(Out))
	r.run(2 * Interval)
	r.fate = func(int, []byte) (int, int) { return 0, 0 }
	r.run(2 * Silence)
	s := r.ends[0].Stats()
	if s.Refused.OtherRack != 1 || s.Refused.Version != 1 || !strings.HasPrefix(s.Trouble, "the other end does not answer") {
		t.Errorf("%+v", s)
	}
	stranger()
	if s := r.ends[0].Stats(); !strings.HasPrefix(s.Trouble, "what comes belongs to another rack") {
		t.Errorf("%+v", s)
	}
}
