package calibrate

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Load is a stream of operations by threads of one client host towards one server.
type Load struct {
	// Op is the operation. Bytes is its size.
	Op    verbs.WROpcode
	Bytes int
	// Pairs is the number of queue pairs, each used by its own thread; Depth is the number of
	// operations that each keeps in flight.
	Pairs, Depth int
	// If Device is true, the operations access memory on the server's NIC, otherwise host memory.
	// If OneWord is true, all queue pairs access the same memory, otherwise each has its own.
	Device, OneWord bool

	// wrap, if not nil, is called with each node of the simulated rack and its name, and returns
	// the node that takes its place.
	wrap func(name string, n simnet.Node) simnet.Node
}

// Throughput runs the load in a simulated rack with the cost model m and a switch that never limits
// the rate, and returns the operations a second.
func (l Load) Throughput(m *cost.Model) (float64, error) { return l.throughput(m.AtLineRate()) }

const rackFile = `
name: calibrate
hosts:
  - {name: client, role: compute}
  - {name: server, role: memory}
`

const (
	service = "calibrate"
	// warmUp is the virtual time before operations are counted, runTime the time in which they are
	// counted.
	warmUp  = 30 * time.Microsecond
	runTime = 100 * time.Microsecond
	// latencyRounds is the number of operations over which a latency is averaged.
	latencyRounds = 100
	// setUp is the time by which all connections have been made.
	setUp = clock.Time(100 * time.Millisecond)
	// stride is the least distance in bytes between the memory of two queue pairs, so that each has
	// its own cache line.
	stride   = 64
	patience = time.Second
)

type run struct {
	Load
	rack  *simrack.Rack
	count int           // operations that completed in the counted time
	took  time.Duration // time of all latencyRounds operations together
}

// throughput runs the load with the cost model m, and returns its rate in operations a second.
func (l Load) throughput(m *cost.Model) (float64, error) {
	r, err := l.run(m, (*run).stream)
	return float64(r.count) / runTime.Seconds(), err
}

// latency returns the mean time of one operation, from just before its post to just after the poll
// that found its completion.
func (l Load) latency(m *cost.Model) (time.Duration, error) {
	r, err := l.run(m, (*run).pingpong)
	return r.took / latencyRounds, err
}

func (l Load) run(m *cost.Model, client func(*run, *thread) error) (*run, error) {
	r := &run{Load: l}
	s, err := rackfile.Parse([]byte(rackFile))
	if err != nil {
		return r, err
	}
	r.rack, err = simrack.New(s, simrack.Options{Seed: 1, Cost: m, Wrap: l.wrap})
	if err != nil {
		return r, err
	}
	defer r.rack.Close()
	srv, cli := r.rack.Host("server"), r.rack.Host("client")
	lent := simrack.Passive{Bytes: r.Pairs * max(r.Bytes, stride), Device: r.Device, Service: service}
	srv.Go(service, true, func(ctx verbs.Context) { r.rack.Stop(srv.Lend(ctx, lent)) })
	for i := range l.Pairs {
		cli.Go(fmt.Sprintf("thread%d", i), false, func(ctx verbs.Context) {
			t, err := r.connect(cli, ctx, i)
			if err == nil {
				ctx.Runtime().Sleep(setUp.Sub(ctx.Runtime().Now()))
				err = client(r, t)
			}
			r.rack.Stop(err)
		})
	}
	return r, r.rack.Run()
}
