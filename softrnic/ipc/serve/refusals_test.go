package serve

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// journal is a log that a test reads.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

// lines returns how many lines have this text.
func (j *journal) lines(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.b.String(), text)
}

// A program that is refused an object gets an error number. The reason is in the log, once for each
// kind and then ever more rarely, in the status, also when the program has ended, and in counters.
func TestRefusalsAreSaid(t *testing.T) {
	h, log := newHouse(t), new(journal)
	h.s.refusals.log = slog.New(slog.NewTextHandler(log, nil))
	b := *h.s.bounds.Load()
	b.all.PDs, b.all.Manager.Channels, b.belled.PDs = 3, 0, 1
	h.s.bounds.Store(&b)
	u := h.attach(t)
	refused := func(op uverbs.Op, want unix.Errno, args ...any) {
		t.Helper()
		if _, errno := u.raw(op, append([]any{pointer}, args...)...); errno != want {
			t.Fatalf("command %d: %v, want %v", op, errno, want)
		}
	}
	for range 3 {
		u.do(uverbs.AllocPD, pointer)
	}
	for range 120 {
		refused(uverbs.AllocPD, unix.ENOMEM)
	}
	refused(uverbs.CreateCQ, unix.EINVAL, uverbs.CQArgs{CQE: 1 << 30, Channel: -1})
	refused(uverbs.CreateSRQ, unix.EINVAL, uverbs.SRQArgs{PD: 99, MaxWR: 1})
	refused(uverbs.CreateCompChannel, unix.EMFILE)
	for text, want := range map[string]int{
		"quota pds: 1 more; this program has 3 of 3 protection domains":              3, // the 1st, 10th, 100th
		"quota channels: 1 more; this program has 0 of 0 completion or event":        1,
		"create CQ: invalid argument: cqe is 1073741824; the NIC takes 1 to 4194303": 1,
		"name=program": 5,
	} {
		if n := log.lines(text); n != want {
			t.Errorf("%q is %d times in the log, want %d:\n%s", text, n, want, log.b.String())
		}
	}
	if c := h.s.RefusalCounters(); c != (RefusalCounters{Quota: 121, Commands: 2}) {
		t.Errorf("counters: %+v", c)
	}
	for _, q := range h.s.Quotas() {
		if want := map[string]uint64{"pds": 120, "channels": 1}[q.Name]; q.Refused != want {
			t.Errorf("quota %s: %d refusals, want %d", q.Name, q.Refused, want)
		}
	}
	must(t, u.conn.Close())
	list := h.s.Refusals()
	if len(list) != 3 || list[0].Quota != "pds" || list[0].Times != 120 || list[1].Quota != "" || list[1].Times != 2 || list[2].Quota != "channels" {
		t.Fatalf("%+v", list)
	}
	if last := list[1].Reason; !strings.Contains(last, "create SRQ: no protection domain has handle 99") {
		t.Errorf("the latest refusal of another kind: %s", last)
	}
	c := h.open(t)
	_, err := c.AllocPD()
	must(t, err)
	if _, err = c.AllocPD(); err == nil {
		t.Error("a second protection domain of one")
	}
	if list = h.s.Refusals(); len(list) != 4 || list[3].Name != t.Name() {
		t.Errorf("%+v", list)
	}
}

// As many refusals are remembered as the bound says: the latest ones.
func TestOldRefusalsAreForgotten(t *testing.T) {
	r := refusals{log: slog.New(slog.DiscardHandler)}
	for i := range uint64(3 * maxRefusalsKept) {
		for range 2 {
			r.add(kindQP, RefusalStatus{client: i + 1}, verbs.ErrLimit)
		}
	}
	if n := len(r.latest); n != maxRefusalsKept || r.latest[0].client != 2*maxRefusalsKept+1 || r.latest[n-1].Times != 2 || r.of(kindQP) != 6*maxRefusalsKept {
		t.Errorf("%d are kept: %+v", n, r.latest)
	}
}

// What an application over package ipc may have of queues is bounded by its bells; what an
// unmodified program may have is not, except its queue pairs.
func TestLimitsAreThoseOfTheKindOfProgram(t *testing.T) {
	h := newHouse(t)
	c := h.open(t)
	if most := c.Device().MaxQP; most != ring.MaxBells/2 {
		t.Errorf("%d queue pairs, want %d", most, ring.MaxBells/2)
	}
	for q := range h.s.clients {
		if l := q.objects.limits; l.CQs != ring.MaxBells/4 || l.SRQs != min(256, ring.MaxBells/8) {
			t.Errorf("%d completion queues, %d shared receive queues", l.CQs, l.SRQs)
		}
	}
}

// New limits are those of programs that attach afterwards. A program that is attached keeps its own,
// so it is never over its quota.
func TestNewLimitsAreForThoseThatAttach(t *testing.T) {
	h := newHouse(t)
	before := h.attach(t)
	h.s.SetLimits(Limits{PDs: 1, Reserve: 50})
	after := h.attach(t)
	for i, u := range map[int]*unmodified{0: before, 1: after} {
		u.do(uverbs.AllocPD, pointer)
		_, errno := u.raw(uverbs.AllocPD, pointer)
		if want := [...]unix.Errno{0, unix.ENOMEM}[i]; errno != want {
			t.Errorf("program %d: the second protection domain: %v, want %v", i, errno, want)
		}
	}
	if l := h.s.bounds.Load(); l.all.Reserve != defaultReserve || l.belled.PDs != 1 {
		t.Errorf("limits: %+v", l)
	}
}
