package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
)

// pathCalls is the path of a POST to the host's daemon: the body is a callsRequest, the answer a
// value of type calls.
const pathCalls = "calls"

// Limits of a measurement of calls.
const (
	maxCallers = 256         // most clients on one host
	maxCalling = time.Minute // longest duration
)

// callsRequest asks a host to measure the metadata server.
type callsRequest struct {
	store.ClientOptions
	Clients  int           `json:"clients"`
	Duration time.Duration `json:"durationNs"`
}

// calls is the result of a measurement: how many calls the metadata server has answered since all
// clients of a host were connected.
type calls struct {
	Clients int           `json:"clients"`
	Calls   uint64        `json:"calls"`
	Span    time.Duration `json:"spanNs"`
	Rate    float64       `json:"callsPerSecond"`
}

func (c *calls) Write(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%.0f calls a second: %d clients, %d calls in %v\n", c.Rate, c.Clients, c.Calls, c.Span.Round(time.Millisecond))
	return err
}

func (c *calls) add(o *calls) {
	c.Clients, c.Calls, c.Span, c.Rate = c.Clients+o.Clients, c.Calls+o.Calls, max(c.Span, o.Span), c.Rate+o.Rate
}

func newCalls(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	clients := fs.Int("clients", 8, "clients in all, spread over the compute hosts, at most 256 on each")
	duration := fs.Duration("duration", 2*time.Second, "how long the clients make calls, up to 1m")
	return func(c *store.Call) (store.Result, error) {
		if *clients < 1 || *duration <= 0 || *duration > maxCalling {
			return nil, store.BadUse("want --clients of 1 or more and --duration up to %v", maxCalling)
		}
		hosts, err := c.Rack.NamesByRole(rackfile.Compute)
		if err != nil {
			return nil, err
		}
		o, err := c.Options()
		if err != nil {
			return nil, err
		}
		hosts = hosts[:min(len(hosts), *clients)]
		errs, list := make([]error, len(hosts)), make([]calls, len(hosts))
		var wg sync.WaitGroup
		for i, h := range hosts {
			in := callsRequest{ClientOptions: o, Clients: (*clients + i) / len(hosts), Duration: *duration}
			wg.Go(func() { errs[i] = c.Post(h, Store.Path(pathCalls), in, &list[i]) })
		}
		wg.Wait()
		sum := new(calls)
		for i := range list {
			sum.add(&list[i])
		}
		return sum, errors.Join(errs...)
	}
}

// calls executes a callsRequest: it runs the clients of one host.
func (n *node) calls(r *http.Request, in callsRequest) (out calls, err error) {
	if in.Clients < 1 || in.Clients > maxCallers || in.Duration <= 0 || in.Duration > maxCalling {
		return out, control.Errorf(http.StatusBadRequest, "%d clients for %v: want 1 to %d on a host, and up to %v", in.Clients, in.Duration, maxCallers, maxCalling)
	}
	open, err := n.Clients(in.ClientOptions)
	if err != nil {
		return out, err
	}
	err = n.h.Do(r, Store.Name+" calls", func(ctx context.Context, v verbs.Context) error {
		rt := v.Runtime()
		list := make([]*clover.Client, in.Clients)
		errs := make([]error, in.Clients)
		from := open(v)
		for i := range list {
			c, err := from.Open(rt.Now().Add(store.Patience))
			if err != nil {
				err = Store.NotOpened(err)
				for _, c := range list[:i] {
					err = errors.Join(err, c.Close())
				}
				return errors.Join(err, from.Close())
			}
			list[i] = c.(*clover.Client)
		}
		began := rt.Now()
		var done atomic.Uint64
		for i, c := range list {
			rt.Go(fmt.Sprintf("caller-%d", i), func() {
				for end := began.Add(in.Duration); errs[i] == nil && rt.Now() < end && ctx.Err() == nil; {
					var k int
					k, errs[i] = c.Exchange(rt.Now().Add(store.Patience))
					done.Add(uint64(k))
				}
			})
		}
		rt.Wait()
		out = calls{Clients: in.Clients, Calls: done.Load(), Span: rt.Now().Sub(began)}
		out.Rate = float64(out.Calls) / out.Span.Seconds()
		for _, c := range list {
			errs = append(errs, c.Close())
		}
		return errors.Join(append(errs, from.Close(), store.Ended(ctx, "measurement"))...)
	})
	return out, store.HTTPError(err)
}
