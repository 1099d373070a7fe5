package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// causes has each way in which a queue pair goes to ERROR without a failed work request, and its
// reason.
var causes = map[string]struct {
	fail func(t *testing.T, p *pair)
	want reason.Code
}{
	"the program": {func(t *testing.T, p *pair) {
		if err := p.a.qp.ToError(0, &p.a.out); err != nil {
			t.Fatal(err)
		}
	}, reason.ByProgram},
	"a fault": {func(t *testing.T, p *pair) {
		if err := p.a.e.FailQP(0, p.a.qp.Num(), &p.a.out); err != nil {
			t.Fatal(err)
		}
	}, reason.ByFault},
	"an overrun": {func(t *testing.T, p *pair) {
		if err := p.a.e.OverrunCQs(0, p.a.qp.Num(), &p.a.out); err != nil {
			t.Fatal(err)
		}
	}, reason.ByOverrun},
}

// The completions of flushed work requests, the listing and the watcher of ends have the same reason.
func TestReasonsOfEnds(t *testing.T) {
	for name, c := range causes {
		p := newPair(t, nil)
		o := &Owner{PID: 3, Name: "x"}
		p.a.qp.SetOwner(o)
		var told []reason.Code
		p.a.e.Hooks.Failed = func(n wire.QPN, by *Owner, end *reason.Note) {
			if n != p.a.qp.Num() || by != o {
				t.Errorf("%s: of queue pair %#x, %v", name, uint32(n), by)
			}
			told = append(told, end.Code)
		}
		recvInto(t, p.a, 0, 8)
		c.fail(t, p)
		if wc := p.a.poll(t); len(wc) != 1 || wc[0].VendorErr != uint32(c.want) {
			t.Errorf("%s: %+v", name, wc)
		}
		if err := p.a.qp.ToError(0, &p.a.out); err != nil { // changes nothing
			t.Fatal(err)
		}
		if !slices.Equal(told, []reason.Code{c.want}) {
			t.Errorf("%s: told %x", name, told)
		}
		list := listed(p.a.e)
		if len(list) != 1 || list[0].End == nil || list[0].End.Code != c.want || list[0].Owner != o || list[0].Gone {
			t.Errorf("%s: %+v", name, list)
		}
		if err := p.a.qp.Destroy(); err != nil {
			t.Fatal(err)
		}
		gone := p.a.e.Listing().FormerQPs()
		if len(gone) != 1 || !gone[0].Gone || gone[0].End.Code != c.want || gone[0].RTR.DestQPN != p.b.qp.Num() {
			t.Errorf("%s: gone: %+v", name, gone)
		}
	}
}

// A NIC remembers a bounded number of queue pairs that have gone, and those that went wrong are not
// replaced by others. A crash of the NIC leaves them.
func TestFormerQPs(t *testing.T) {
	p := newPair(t, nil)
	end := func(wrong bool) wire.QPN {
		q := newQP(t, p.a)
		connect(t, 0, q, p.b.qp, 0, verbs.MTU1024)
		if wrong {
			if err := p.a.e.FailQP(0, q.Num(), &p.a.out); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Destroy(); err != nil {
			t.Fatal(err)
		}
		return q.Num()
	}
	wrong := end(true)
	unused := newQP(t, p.a)
	if err := unused.Destroy(); err != nil {
		t.Fatal(err)
	}
	last := wire.QPN(0)
	for range MaxFormer + 5 {
		last = end(false)
	}
	list := p.a.e.Listing().FormerQPs()
	if len(list) != MaxFormer+1 || list[MaxFormer-1].QPN != last || list[MaxFormer].QPN != wrong {
		t.Errorf("%d remembered, the last %#x, %#x", len(list), uint32(list[MaxFormer-1].QPN), uint32(list[len(list)-1].QPN))
	}
	const crash = clock.Time(time.Hour)
	p.a.e.Down(crash)
	list = p.a.e.Listing().FormerQPs()
	if got := list[len(list)-1]; got.QPN != p.a.qp.Num() || got.End == nil || got.End.Code != reason.NICDown || got.End.At != crash {
		t.Errorf("after the crash: %+v", got)
	}
}

// A listing has each queue pair once.
func TestNumbersOfQPs(t *testing.T) {
	p := newPair(t, nil)
	for range 2 * QPPage {
		newQP(t, p.a)
	}
	numbers := p.a.e.Listing().QPNumbers()
	slices.Sort(numbers)
	if len(numbers) != 2*QPPage+1 || len(slices.Compact(numbers)) != 2*QPPage+1 {
		t.Errorf("%d queue pairs", len(numbers))
	}
	if got := p.a.e.Listing().QPs([]wire.QPN{numbers[3], numbers[len(numbers)-1] + 1, numbers[1]}); len(got) != 2 || got[0].QPN != numbers[3] || got[1].QPN != numbers[1] {
		t.Errorf("asked for two and for one that does not exist: %+v", got)
	}
}

func listed(e *Engine) []QPInfo { return e.Listing().QPs(e.Listing().QPNumbers()) }
