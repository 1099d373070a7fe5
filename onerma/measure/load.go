package measure

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// loanTries is how many peers a load asks for memory at the same time. With all peers of a large
// rack at once, the broadcasts of ARP would fill slow links.
const loanTries = 4

// loading is a load in progress.
type loading struct {
	ctx    context.Context
	proc   *host.Process
	load   *perf.Load
	drawn  *perf.Arrivals
	loans  []*host.Loan
	local  *host.Region
	last   clock.Time    // perf.Load.Last by the NIC's clock
	flying chan struct{} // has an element for each READ in flight
	wg     sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	result perf.LoadResult
	err    error
}

// RunLoad runs a load of READs. peers are the addresses of the hosts load.To, whose memory RunLoad
// borrows before the load begins. gate becomes host.ProcessConfig.Gate.
func RunLoad(ctx context.Context, n *host.NIC, gate func(), peers []netip.Addr, load *perf.Load) (res perf.LoadResult, err error) {
	if err := load.Validate(); err != nil {
		return res, err
	}
	control := n.Control()
	control.TotalDelay = load.TotalDelay
	control.First = cmp.Or(load.First, control.First)
	if load.Open {
		// Without congestion control, the window has room for all operations and never changes.
		control.First, control.Least, control.Most = perf.MaxLoadFlying, perf.MaxLoadFlying, perf.MaxLoadFlying
	}
	p, err := n.Open(host.ProcessConfig{Slots: perf.MaxLoadFlying, Gate: gate, Control: &control})
	if err != nil {
		return res, err
	}
	defer p.Close()
	// When ctx ends, the process ends, and with it all waits for READs.
	defer context.AfterFunc(ctx, p.Close)()
	r := &loading{ctx: ctx, proc: p, load: load, drawn: load.Arrivals(), flying: make(chan struct{}, perf.MaxLoadFlying)}
	defer func() { err = errors.Join(err, r.giveBack()) }()
	if err := r.borrow(peers); err != nil {
		return res, err
	}
	if r.local, err = p.Register(make([]byte, load.Size), verbs.LocalWrite); err != nil {
		return res, err
	}
	r.last = n.Now().Add(time.Duration(load.Last - time.Now().UnixNano()))
	if err := r.until(load.Begin); err != nil {
		return res, err
	}
	r.result.Began = time.Now().UnixNano()
	err = r.begin()
	r.wg.Wait()
	return r.result, errors.Join(err, r.err)
}

// borrow borrows the memory of all peers, from loanTries of them at the same time.
func (r *loading) borrow(peers []netip.Addr) error {
	r.loans = make([]*host.Loan, len(peers))
	errs := make([]error, loanTries)
	for k := range loanTries {
		r.wg.Go(func() {
			for i := k; i < len(peers) && errs[k] == nil; i += loanTries {
				r.loans[i], errs[k] = host.Borrow(r.ctx, r.proc, peers[i], r.load.Size)
			}
		})
	}
	r.wg.Wait()
	return cmp.Or(errs...)
}

func (r *loading) giveBack() error {
	var errs []error
	for _, l := range r.loans {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// until waits until a time, in nanoseconds since 1970, or until the load's context ends.
func (r *loading) until(at int64) error {
	select {
	case <-r.ctx.Done():
	case <-time.After(time.Duration(at - time.Now().UnixNano())):
	}
	return r.ctx.Err()
}

// begin begins READs until the load ends, or the first error. The caller waits for the READs.
func (r *loading) begin() error {
	if r.load.Rate == 0 {
		for range r.load.Depth {
			to := r.drawn.Peer()
			r.wg.Go(func() {
				for time.Now().UnixNano() < r.load.End && r.read(to) {
				}
			})
		}
		return nil
	}
	for at := r.result.Began + int64(r.drawn.Gap()); at < r.load.End && !r.full(); at += int64(r.drawn.Gap()) {
		if err := r.until(at); err != nil {
			return err
		}
		to := r.drawn.Peer()
		select {
		case r.flying <- struct{}{}:
			r.wg.Go(func() { r.read(to); <-r.flying })
		default:
			r.add(perf.LoadSample{At: time.Now().UnixNano(), Status: perf.LoadShed})
		}
	}
	return nil
}

// read makes a READ of the memory of the peer with number `to`. It reports whether the load can go
// on.
func (r *loading) read(to int) bool {
	var c host.Call
	begun := time.Now().UnixNano()
	err := r.proc.Start(&c, &host.Transfer{Op: onerma.Read, Remote: r.loans[to].Remote, Length: r.load.Size, Local: r.local, Once: r.load.Open}, r.last)
	var res host.Result
	if err == nil {
		res, err = c.Wait()
	}
	s := perf.LoadSample{At: begun + int64(res.Delay), Took: res.Delay, Retries: res.Retries}
	var failed *host.StatusError
	if errors.As(err, &failed) {
		s.Status, err = failed.Status.String(), nil
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = cmp.Or(r.err, err)
		return false
	}
	return r.add(s) && s.Status != nic.RemoteAuthenticationFailure.String()
}

// add adds a READ to the result. It reports whether more READs may begin.
func (r *loading) add(s perf.LoadSample) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Samples = append(r.result.Samples, s)
	return !r.result.Full()
}

// full reports whether no more READs may begin.
func (r *loading) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result.Full()
}
