package host_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
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

// pair is two NICs that do nothing by themselves, with a process and a region each.
type pair struct {
	nics    [2]*host.NIC
	procs   [2]*host.Process
	regions [2]*host.Region
	memory  [2][]byte
}

func newPair(t *testing.T, bytes int) *pair {
	t.Helper()
	x, dir := &pair{}, t.TempDir()
	for i := range x.nics {
		n, err := host.New(host.Config{
			NIC: nic.Config{
				MAC: macs[i], Addr: addr(i), RTT: time.Millisecond, Resolve: func(netip.Addr) (wire.MAC, bool) { return macs[1-i], true },
			},
			Executor: executor.Config{RTT: time.Millisecond}, EpochFile: filepath.Join(dir, string(rune('a'+i))),
		})
		if err != nil {
			t.Fatal(err)
		}
		n.Attach(byHand{})
		if err = n.Up(); err != nil {
			t.Fatal(err)
		}
		x.nics[i] = n
		if x.procs[i], err = n.Open(host.ProcessConfig{}); err != nil {
			t.Fatal(err)
		}
		x.memory[i] = fill(make([]byte, bytes), uint64(i))
		if x.regions[i], err = x.procs[i].Register(x.memory[i], remote); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// A READ that has ended keeps its result if the NIC ends before the receive batch does, as when the
// port fails while answers are sent. A READ that has not ended gets ErrClosed.
func TestDownInABatchKeepsResults(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		x := newPair(t, 128<<10)
		from := granted(t, x.regions[1], 1, x.procs[0])
		calls, lengths := make([]host.Call, 1+r.IntN(6)), make([]int, 6)
		const apart = 20_000
		for i := range calls {
			lengths[i] = 1 + r.IntN(apart)
			tr := host.Transfer{Op: onerma.Read, Remote: from, Offset: uint64(i * apart), Length: lengths[i], Local: x.regions[0], LocalOffset: uint64(i * apart)}
			if err := x.procs[0].Start(&calls[i], &tr, clock.Never); err != nil {
				t.Fatal(err)
			}
		}
		var requests, answers, none packetio.Batch
		x.nics[0].Tick(1, &requests)
		for _, f := range requests.Frames {
			x.nics[1].Frame(1, 0, f, &answers)
		}
		last := r.IntN(len(answers.Frames) + 1)
		for i, f := range answers.Frames {
			if i == last {
				x.nics[0].Crash()
			}
			x.nics[0].Frame(1, 0, f, &none)
		}
		x.nics[0].Down()
		x.nics[0].EndBatch(1, &none)
		for i := range calls {
			res, err := calls[i].Wait()
			arrived := bytes.Equal(x.memory[0][i*apart:][:lengths[i]], x.memory[1][i*apart:][:lengths[i]])
			if arrived && (err != nil || res.Moved != lengths[i] || res.Delay < 0) || !arrived && !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("seed %d: READ %d of %d bytes, all arrived: %v: %+v, error %v", seed, i, lengths[i], arrived, res, err)
			}
		}
	}
}
