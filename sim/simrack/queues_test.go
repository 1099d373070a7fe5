package simrack

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// incast is a rack whose two clients write to one server; QUEUE is the queue of priority 3.
const incast = `
name: incast
mtu: 1280
switch:
  ports: {rate: 1Gbit, buffer: 4MiB, reaction: 0s}
  dscp: {3: 3}
  queues: {3: {QUEUE, ecn: {kmin: 5000, kmax: 100000, pmax: 1%}}}
hosts:
  - {name: "cn[0-1]", role: compute, tos: 14}
  - {name: ms0, role: memory, tos: 14}
`

// incastResult is what a run has shown.
type incastResult struct {
	rates         [2]float64 // MiB a second of each client
	marks, pauses int        // frames delivered
	dropped       uint64
	retransmitted uint64
}

func runIncast(t *testing.T, queue string) (out incastResult) {
	t.Helper()
	var p wire.Pause
	opt := Options{Trace: func(e *simnet.Event) {
		if e.Kind != simnet.Delivered {
			return
		}
		if ecn, _ := wire.ECNOf(e.Frame); ecn == wire.CE {
			out.marks++
		}
		if wire.ParsePause(e.Frame, &p) == nil {
			out.pauses++
		}
	}}
	r := newRack(t, strings.Replace(incast, "QUEUE", queue, 1), opt)
	serve(t, r.Host("ms0"))
	for i, name := range []string{"cn0", "cn1"} {
		cn := r.Host(name)
		cn.Go("client", false, func(ctx verbs.Context) {
			start := r.Now()
			cfg := perf.Config{Test: perf.WriteBW, Size: 64 << 10, Iters: 400, Depth: 8, Hooks: perf.Hooks{Counters: cn.Counters}, To: "ms0"}
			if _, err := perf.Run(ctx, cn.Manager(ctx), r.Host("ms0").Addr(), cfg, nil); err != nil {
				t.Error(err)
			}
			out.rates[i] = 400 * 64. / 1024 / r.Now().Sub(start).Seconds()
		})
	}
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if err := r.Settle(time.Second); err != nil {
		t.Fatal(err)
	}
	for i := range r.Hosts() {
		st := r.Queues(0).Port(r.Now(), i)[3]
		out.dropped += st.Dropped
		if st.Pausing {
			t.Errorf("at rest the switch pauses port %d", i)
		}
		out.retransmitted += r.Hosts()[i].Counters().RetransPkts
	}
	if u := r.Queues(0).Used(); u.Total() != 0 {
		t.Errorf("at rest %+v", u)
	}
	return out
}

// Two clients that write into one port of a rack with a lossless priority lose nothing, have equal shares
// of the line and are paused; packets are marked. With a lossy priority, whose queue is short, packets
// are lost, and no host is paused.
func TestIncastOfARack(t *testing.T) {
	line := 1e9 / 8 / (1 << 20) * 1024 / (1024 + 58 + 4 + 24.) // MiB of payload a second
	lossless := runIncast(t, "lossless: true, xoff: 40KiB")
	sum := lossless.rates[0] + lossless.rates[1]
	if lossless.dropped != 0 || lossless.retransmitted != 0 || lossless.pauses == 0 || lossless.marks == 0 {
		t.Errorf("lossless: %+v", lossless)
	}
	if math.Abs(lossless.rates[0]-lossless.rates[1]) > .05*sum/2 || sum < .95*line || sum > line*1.01 {
		t.Errorf("lossless: %.1f MiB/s of %.1f", lossless.rates, line)
	}
	lossy := runIncast(t, "limit: 40KiB")
	if lossy.dropped == 0 || lossy.retransmitted == 0 || lossy.pauses != 0 {
		t.Errorf("lossy: %+v", lossy)
	}
	t.Logf("lossless %+v, lossy %+v, line %.1f", lossless, lossy, line)
}

// The same rack and seed give the same run.
func TestQueuesAreDeterministic(t *testing.T) {
	if a, b := runIncast(t, "lossless: true, xoff: 40KiB"), runIncast(t, "lossless: true, xoff: 40KiB"); a != b {
		t.Errorf("%+v and %+v", a, b)
	}
}

// Frames in the queue of a host that crashes are lost, and the rack goes on.
func TestCrashOfAQueuedHost(t *testing.T) {
	r := newRack(t, strings.Replace(incast, "QUEUE", "lossless: true", 1), Options{})
	var srv conn
	echoServer(t, r.Host("ms0"), &srv)
	r.At(clock.Time(time.Millisecond), func() { r.Host("cn1").Crash() })
	r.At(clock.Time(2*time.Millisecond), func() { r.Host("cn1").Restart() })
	cn := r.Host("cn0")
	cn.Go("client", false, func(ctx verbs.Context) {
		if got, after := writeUntil(t, dialEcho(t, r, cn, ctx), &srv, clock.Time(4*time.Millisecond)); got != verbs.Success || after == 0 {
			t.Errorf("status %v, %d WRITEs after the crash", got, after)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if r.Host("cn0").Queues() == nil || r.Host("cn0").Queues().Used().Total() != 0 {
		t.Error("the NIC has no queue, or it is not empty")
	}
}

// What waits in the queue of a NIC that crashes never reaches the link, also if the NIC is started again
// at once; a new incarnation of the host begins with an empty queue, too.
func TestCrashedNICHasNoQueuedFrames(t *testing.T) {
	for name, crash := range map[string]func(h *Host){
		"crash":  func(h *Host) { h.CrashNIC(); h.RestartNIC() },
		"reboot": func(h *Host) { _ = h.Reboot() },
	} {
		r := newRack(t, strings.Replace(incast, "QUEUE", "lossless: true", 1), Options{})
		serve(t, r.Host("ms0"))
		cn := r.Host("cn0")
		before, after := int64(0), int64(0)
		r.At(clock.Time(2*time.Millisecond), func() {
			before = cn.Queues().Used().Total()
			crash(cn)
			after = cn.Queues().Used().Total()
		})
		cn.Go("client", false, func(ctx verbs.Context) {
			cfg := perf.Config{Test: perf.WriteBW, Size: 64 << 10, Iters: 400, Depth: 8, Hooks: perf.Hooks{Counters: cn.Counters}, To: "ms0"}
			if _, err := perf.Run(ctx, cn.Manager(ctx), r.Host("ms0").Addr(), cfg, nil); err == nil {
				t.Error("the test passes over the crash of its NIC")
			}
		})
		if err := r.Run(); err != nil {
			t.Fatal(err)
		}
		if before < 10_000 || after != 0 {
			t.Errorf("%s: %d bytes waited before, %d after", name, before, after)
		}
	}
}
