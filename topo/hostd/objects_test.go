package hostd

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func objects(t *testing.T, c *control.Client, path string) (o Objects) {
	t.Helper()
	if err := c.Call(t.Context(), "GET", path, nil, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// noted returns the queue pairs with a note of a kind, and the newest such note of each.
func noted(o Objects, kind string) (qps []QPObject, notes []NoteStatus) {
	for _, q := range o.QPs {
		for i := len(q.Notes) - 1; i >= 0; i-- {
			if q.Notes[i].Kind == kind {
				qps, notes = append(qps, q), append(notes, q.Notes[i])
				break
			}
		}
	}
	return qps, notes
}

// A packet that is lost leaves its story on both hosts, also when the queue pairs are gone.
func TestObjectsAfterALoss(t *testing.T) {
	r := testRack()
	dir := describe(t, r)
	var lost atomic.Bool
	a, b := memcable.Pair(memcable.Config{Filter: func(from, _ int, f packetio.Frame) int {
		var p wire.Frame
		if from == 0 && wire.ParseFrame(f.Data, &p) == nil && p.BTH.Opcode == wire.RCWriteMiddle && lost.CompareAndSwap(false, true) {
			return 0
		}
		return 1
	}})
	start(t, dir, &r.Hosts[0], a)
	start(t, dir, &r.Hosts[1], b)
	paths := rackfile.Paths{Dir: dir}
	cn, ms := control.NewClient(paths.Socket("cn0")), control.NewClient(paths.Socket("ms0"))
	before := time.Now()
	if _, err := runPerf(t.Context(), cn, perf.Config{Test: perf.WriteBW, To: "ms0", Size: 16384, Iters: 20}); err != nil {
		t.Fatal(err)
	}
	qps, heals := noted(objects(t, cn, PathQPs), "healed")
	if len(heals) != 1 || !qps[0].Gone || qps[0].Owner.Name != DaemonOwner || qps[0].Totals.Healed != 1 {
		t.Fatalf("cn0: %+v", qps)
	}
	h := heals[0]
	if h.At.Before(before) || h.At.After(time.Now()) || h.Work == nil || h.Work.Op != "WRITE" || h.Packet != "packet 2 of 4 of WRITE 1" {
		t.Errorf("cn0 notes %+v", h)
	}
	peers, missed := noted(objects(t, ms, PathQPs), "missed")
	if len(missed) != 1 || missed[0].First != h.First || peers[0].QPN != qps[0].PeerQPN || missed[0].Answer != "NAK_PSN_SEQ" {
		t.Errorf("ms0 notes %+v; cn0 %+v", missed, h)
	}
}

// The listings have the objects of a host with their owners, and a request beyond a region leaves its
// reason there and in the log.
func TestObjectsAfterARefusal(t *testing.T) {
	dir, h, out := logged(t)
	cn := control.NewClient(rackfile.Paths{Dir: dir}.Socket("cn0"))
	fails := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := h.dev.Context()
	ctx.(*verbsengine.Context).SetOwner(&engine.Owner{PID: 77, Name: "tester"})
	t.Cleanup(func() { _ = ctx.Close() })
	pd, err := ctx.AllocPD()
	fails(err)
	cq, err := ctx.CreateCQ(16)
	fails(err)
	mr, err := pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteWrite)
	fails(err)
	var q [2]verbs.QP
	for i := range q {
		q[i], err = pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
		fails(err)
	}
	for i := range q {
		fails(q[i].ToInit(verbs.ToInit{Access: verbs.RemoteWrite}))
		fails(q[i].ToRTR(verbs.ToRTR{DestQPN: q[1-i].QPN(), DestGID: ctx.Device().GIDs[0], PathMTU: verbs.MTU1024}))
		fails(q[i].ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}))
	}
	beyond := mr.Addr() + 4096
	fails(q[0].PostSend(verbs.SendWR{ID: 5, Op: verbs.OpWrite, SGL: []verbs.SGE{mr.SGE(0, 8)}, RemoteAddr: beyond, RKey: mr.RKey()}))
	fails(cq.Wait(ctx.Runtime().Now().Add(10 * time.Second)))
	var wc [2]verbs.WC
	if n, err := cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.RemAccessErr || wc[0].VendorErr != uint32(reason.PeerAccess) {
		t.Fatalf("%d completions, %v: %+v", n, err, wc[0])
	}

	why := fmt.Sprintf("R_Key %#x of region %d covers %#x to %#x, and the request asks for 8 bytes at %#x", mr.RKey(), 1, mr.Addr(), mr.Addr()+4095, beyond)
	list := objects(t, cn, PathQPs)
	if len(list.QPs) != 2 {
		t.Fatalf("%d queue pairs", len(list.QPs))
	}
	for _, x := range list.QPs {
		e := x.LastError
		if x.Owner != (OwnerStatus{77, "tester"}) || x.State != "ERR" || e == nil || x.Gone {
			t.Fatalf("%+v", x)
		}
		if x.QPN == uint32(q[0].QPN()) {
			if e.Kind != "failed" || e.Work.ID != 5 || e.Work.Addr != beyond || e.Status != "remote access error" || e.Code != uint32(reason.PeerAccess) || e.Since.IsZero() {
				t.Errorf("the requester: %+v", e)
			}
		} else if e.Kind != "refused" || e.Because != why || e.Code != uint32(reason.RemoteBounds) || e.Answer != "NAK_REM_ACCESS" {
			t.Errorf("the responder: %+v, want %q", e, why)
		}
	}
	eventually(t, "the log has the reason", func() bool { return strings.Contains(out.String(), why) })

	if m := objects(t, cn, PathMRs).MRs; len(m) != 1 || m[0].Number != 1 || m[0].Owner.PID != 77 || m[0].Addr != mr.Addr() || m[0].Length != 4096 ||
		m[0].Access != "local write, remote write" || !m[0].Valid || m[0].RKey != mr.RKey() || m[0].Kind != "region" {
		t.Errorf("regions: %+v", m)
	}
	i := slices.IndexFunc(objects(t, cn, PathCQs).CQs, func(c CQObject) bool { return c.Owner.PID == 77 })
	if c := objects(t, cn, PathCQs).CQs; i < 0 || c[i].Depth != 16 || len(c[i].QPs) != 2 || c[i].Queued != 0 {
		t.Errorf("completion queues: %+v", c)
	}
	if s := objects(t, cn, PathCMs).Services; len(s) == 0 {
		t.Error("the host listens for nothing")
	}
	verbsengine.Deny(q[0], fmt.Errorf("modify QP: it is so"))
	verbsengine.Deny(q[0], fmt.Errorf("modify QP: it is so"))
	fails(q[0].Destroy())
	_, denied := noted(objects(t, cn, PathQPs), "denied")
	if len(denied) != 1 || denied[0].Times != 2 || denied[0].Because != "modify QP: it is so" {
		t.Errorf("denied: %+v", denied)
	}
}

// heard is a log that a test reads while it is written.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// logged starts cn0 alone, with a log that the test reads.
func logged(t *testing.T) (dir string, h *Host, out *heard) {
	t.Helper()
	r := testRack()
	dir, out = describe(t, r), new(heard)
	a, _ := memcable.Pair(memcable.Config{})
	h, err := Open(Config{
		Dir: dir, Name: "cn0", Log: slog.New(slog.NewTextHandler(out, nil)), listen: r.Hosts[0].IPv4,
		open: func(*rackfile.Host) (port, packetio.Waiter, error) {
			return &end{a, r.Hosts[0].MAC}, memcable.NewWaiter(a), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, h, out
}

// In a rack in slow motion a second of the device is many of the wall.
func TestWallClock(t *testing.T) {
	wall := time.Unix(1000, 0)
	for slow, want := range map[int]time.Time{1: time.Unix(998, 0), 100: time.Unix(800, 0)} {
		if got := wallAt(wall, clock.Time(5*time.Second), slow)(clock.Time(3 * time.Second)); !got.Equal(want) {
			t.Errorf("2s ago, %d times slower: %v, want %v", slow, got, want)
		}
	}
	if got := wallAt(wall, 5, 1)(0); !got.IsZero() {
		t.Errorf("no time is %v", got)
	}
}
