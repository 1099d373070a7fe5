package portqueue

import (
	"container/heap"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// roce returns a RoCEv2 frame of n bytes with this DSCP and ECN.
func roce(dscp int, ecn wire.ECN, n int) []byte {
	const headers = 14 + 20 + 8 + 12 + 16 + 4
	f := wire.Frame{
		Eth:  wire.Ethernet{Dst: wire.MAC{2, 0, 0, 0, 0, 1}, Src: wire.MAC{2, 0, 0, 0, 0, 2}},
		IPv4: wire.IPv4{TOS: uint8(dscp)<<2 | uint8(ecn), TTL: 64, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
	}
	f.BTH.Opcode = wire.RCWriteOnly
	f.Payload = make([]byte, (n-headers)&^3)
	return f.AppendTo(nil)
}

// straight maps each code point below 8 to the priority of the same number.
func straight() (m [64]uint8) {
	for i := range m {
		m[i] = uint8(i % Priorities)
	}
	return m
}

func bank(t testing.TB, cfg Config, ports int) *Bank {
	t.Helper()
	if cfg.Buffer == 0 {
		cfg.Buffer = 64 << 20
	}
	cfg.DSCP = straight()
	b, err := New(cfg, ports)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fabric is a switch with hosts on links, in virtual time. Each host sends frames of one length to one
// port of the switch as fast as its NIC lets it.
type fabric struct {
	t        testing.TB
	now      clock.Time
	events   events
	seq      int
	sw       *Bank
	hosts    []*host
	delay    time.Duration // of a link
	reaction time.Duration // how late a host obeys
	rate     int64
	lost     int
	// worst: a pause frame waits for a longest frame that has begun to leave.
	worst time.Duration
}

type event struct {
	at  clock.Time
	seq int
	do  func()
}

type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)   { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}

type host struct {
	nic      *Bank
	frame    []byte
	to       int
	left     int // frames to send
	got      [Priorities]int
	gotBytes int64
	last     clock.Time // of the last frame that it has sent
}

func newFabric(t testing.TB, hosts int, cfg Config) *fabric {
	f := &fabric{t: t, rate: cfg.Rate, sw: bank(t, cfg, hosts)}
	for range hosts {
		nic := cfg
		nic.Own, nic.Buffer, nic.Watchdog = MaxBuffer, MaxBuffer, Watchdog{}
		f.hosts = append(f.hosts, &host{nic: bank(t, nic, 1)})
	}
	return f
}

func (f *fabric) after(d time.Duration, do func()) {
	f.seq++
	heap.Push(&f.events, event{f.now.Add(d), f.seq, do})
}

// send makes host i send n frames to the switch's port `to`.
func (f *fabric) send(i, to, n int, frame []byte) {
	h := f.hosts[i]
	h.frame, h.to, h.left = frame, to, n
}

func (f *fabric) wireTime(n int) time.Duration {
	return time.Duration(int64(n+f.sw.cfg.Overhead) * 8 * int64(time.Second) / f.rate)
}

// run handles events until `end`.
func (f *fabric) run(end clock.Time) {
	var out packetio.Batch
	for {
		at := f.sw.Deadline()
		for _, h := range f.hosts {
			for h.left > 0 && h.nic.ports[0].frames < 2 {
				h.left--
				h.nic.Offer(f.now, -1, 0, packetio.Frame{Data: h.frame}, "")
			}
			at = clock.Min(at, h.nic.Deadline())
		}
		arrives := len(f.events) > 0 && f.events[0].at <= at
		if arrives {
			at = f.events[0].at
		}
		if at > end {
			f.now = end
			return
		}
		f.now = max(f.now, at)
		if arrives {
			heap.Pop(&f.events).(event).do()
			continue
		}
		for i, h := range f.hosts {
			out.Reset()
			h.nic.Due(f.now, &out)
			for _, fr := range out.Frames {
				data, to := append([]byte(nil), fr.Data...), h.to
				h.last = f.now
				f.after(f.delay+f.wireTime(len(data)), func() {
					if !f.sw.Control(f.now, i, data) {
						f.lost += f.sw.Offer(f.now, i, to, packetio.Frame{Data: data}, "")
					}
				})
			}
		}
		out.Reset()
		f.sw.Due(f.now, &out)
		for _, fr := range out.Frames {
			data, h := append([]byte(nil), fr.Data...), f.hosts[fr.Port]
			wait := f.delay + f.wireTime(len(data))
			if wire.IsPause(data) {
				wait += f.worst + f.reaction
			}
			f.after(wait, func() {
				if !h.nic.Control(f.now, 0, data) {
					h.got[f.sw.Priority(data)]++
					h.gotBytes += int64(len(data))
				}
			})
		}
	}
}
