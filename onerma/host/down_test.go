package host_test

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	onerma "github.com/rdmalab/rdmalab/onerma/wire"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// byHand is a driver whose NIC does nothing by itself.
type byHand struct{}

func (byHand) Enter() clock.Time { return 1 }
func (byHand) Leave()            {}
func (byHand) Now() clock.Time   { return 1 }
func (byHand) Await(ready func() bool, _ clock.Time) error {
	if ready() {
		return nil
	}
	return verbs.ErrTimeout
}

// A READ that has ended keeps its result if the NIC ends before the receive batch does, as when the
// port fails while answers are sent.
func TestDownInABatchKeepsResults(t *testing.T) {
	var nics [2]*host.NIC
	var procs [2]*host.Process
	var regions [2]*host.Region
	for i := range nics {
		n, err := host.New(host.Config{
			NIC: nic.Config{
				MAC: macs[i], Addr: addr(i), RTT: time.Millisecond, Resolve: func(netip.Addr) (wire.MAC, bool) { return macs[1-i], true },
			},
			Executor: executor.Config{RTT: time.Millisecond}, EpochFile: filepath.Join(t.TempDir(), "epoch"),
		})
		if err != nil {
			t.Fatal(err)
		}
		n.Attach(byHand{})
		if err = n.Up(); err != nil {
			t.Fatal(err)
		}
		nics[i] = n
		if procs[i], err = n.Open(host.ProcessConfig{}); err != nil {
			t.Fatal(err)
		}
		if regions[i], err = procs[i].Register(make([]byte, 64), remote); err != nil {
			t.Fatal(err)
		}
	}
	g, err := regions[1].Grant(addr(0), procs[0].PID())
	if err != nil {
		t.Fatal(err)
	}
	from, err := g.Remote(addr(1))
	if err != nil {
		t.Fatal(err)
	}
	var c host.Call
	if err := procs[0].Start(&c, &host.Transfer{Op: onerma.Read, Remote: from, Length: 64, Local: regions[0]}, clock.Never); err != nil {
		t.Fatal(err)
	}
	var request, answer, none packetio.Batch
	nics[0].Tick(1, &request)
	for _, f := range request.Frames {
		nics[1].Frame(1, 0, f, &answer)
	}
	for _, f := range answer.Frames {
		nics[0].Frame(1, 0, f, &none)
	}
	nics[0].Down()
	nics[0].EndBatch(1, &none)
	if res, err := c.Wait(); err != nil || res.Moved != 64 {
		t.Fatalf("%d bytes, error %v; want 64 and none", res.Moved, err)
	}
}
