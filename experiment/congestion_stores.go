package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Bulk is what a store's clients have beside them: ports of the switch with a rate, and hosts that WRITE 64 KiB to
// each memory server all the time, BulkSenders to each. The operations of the clients are recorded, and one order
// of them must explain all answers. The zero value means that there is none of that.
type Bulk struct {
	// Control is one of the values below: what NICs and switch do about congestion.
	Control string
	// Recovery is that of all queue pairs; 0 means go-back-N.
	Recovery selective.Kind
}

// Values of Bulk.Control: a queue that drops what is more than it holds; DCQCN besides; and with it a lossless
// priority of all packets. BulkIdle has no bulk senders.
const (
	BulkIdle  = "no bulk"
	BulkNone  = "none"
	BulkDCQCN = "dcqcn"
	BulkPFC   = "dcqcn, PFC"
	BulkIRN   = "irn"
	// BulkByFile is, on a rack, what its file says.
	BulkByFile = "bulk senders"
)

const (
	// BulkSenders is how many hosts send to each memory server, BulkRate the rate of the ports.
	BulkSenders = 2
	BulkRate    = 10_000_000_000
	// bulkClients is how many clients a store has.
	bulkClients = 28
)

// bulkStores are the stores whose clients are measured beside bulk senders.
var bulkStores = []string{"Clover", "FUSEE", "Sherman"}

// ccStore is a load of clients of a store beside bulk senders.
type ccStore struct {
	store   string // of bulkStores
	control string
	quick   bool
}

func (l ccStore) label() string { return fmt.Sprintf("stores: %s, %s", l.store, l.control) }

func (l ccStore) effort() float64 { return 50 }

// times returns how long the clients work before operations are counted, and for how long these are. On an idle network
// nothing takes longer than some microseconds. Where packets are lost and nothing slows their senders, an ACK timeout of
// 134 ms is what a lost operation takes, and many of them are one run.
func (l ccStore) times() (warm, run time.Duration) {
	switch {
	case l.quick || l.control == BulkIdle:
		return 20 * time.Millisecond, 40 * time.Millisecond
	case l.control == BulkNone:
		return 300 * time.Millisecond, 2 * time.Second
	}
	return 400 * time.Millisecond, 800 * time.Millisecond
}

func (l ccStore) once(ctx context.Context, p Platform, seed uint64) (outcome, error) {
	b := Bulk{Control: l.control}
	if l.control == BulkIRN {
		b = Bulk{Control: BulkNone, Recovery: selective.IRN}
	}
	half, err := kv.FindWorkload("50")
	if err != nil {
		return outcome{}, err
	}
	warm, run := l.times()
	if p.On() == OnRack {
		warm, run = l.rackTimes()
	}
	var res StoreResult
	switch l.store {
	case "Clover":
		res, err = p.Clover(ctx, Clover{Clients: bulkClients, Writes: 50, Zipf: 0.99, Bulk: b, Seed: seed, Warm: warm, Run: run})
	case "FUSEE":
		res, err = p.Fusee(ctx, Fusee{Clients: bulkClients, Workload: half, Keys: 1024, Zipf: 0.99, Bulk: b, Seed: seed, Warm: warm, Run: run})
	default:
		res, err = p.Sherman(ctx, Sherman{Clients: bulkClients, Workload: half, Keys: 1024, Zipf: 0.99, Bulk: b, Seed: seed, Warm: warm, Run: run})
	}
	res.Restless = l.control == BulkNone
	return outcome{store: &res}, err
}

func ccKeyValue(quick bool) figure {
	f := figure{
		key: "stores", title: fmt.Sprintf("%d clients of a store (half of the operations write, Zipf 0.99) whose servers' ports bulk senders fill", bulkClients),
		x: "congestion control", unit: "thousand operations a second, us", format: "%.4g",
		why: []string{
			"there are no published numbers: the papers of these stores have an idle network",
			fmt.Sprintf("ports have 10 Gb/s, and hold 240 KB for a port without PFC; %d hosts WRITE 64 KiB to each server, with 128 packets in flight each", BulkSenders),
			"none: go-back-N without congestion control; irn: selective retransmission instead, likewise without",
			"the history of all operations is checked; a run fails no operation, has a linearizable history and, but for none, is steady, or the figure fails",
			"none is not steady: its clients wait for ACK timeouts nearly all the time, at the same times",
		},
	}
	for _, store := range bulkStores {
		for _, control := range []string{BulkIdle, BulkNone, BulkDCQCN, BulkPFC, BulkIRN} {
			l := repeated{ccStore{store, control, quick}, 1}
			us := func(kind kv.Kind, at float64) func(o *outcome) float64 {
				return func(o *outcome) float64 { return float64(o.store.Percentile(kind, at)) / 1e3 }
			}
			f.add(
				ours(store, "bulk, share of the ports", control, l, func(o *outcome) float64 { return o.store.Bulk }),
				ours(store, "operations, 1000/s", control, l, func(o *outcome) float64 { return o.store.Throughput() / 1e3 }),
				ours(store, "READ p50, us", control, l, us(kv.KindRead, 50)),
				ours(store, "READ p99, us", control, l, us(kv.KindRead, 99)),
				ours(store, "WRITE p50, us", control, l, us(kv.KindUpdate, 50)),
				ours(store, "WRITE p99, us", control, l, us(kv.KindUpdate, 99)),
			)
		}
	}
	return f
}

// storesDemands are what must hold in figure stores.
var storesDemands = []figureDemand{
	{"stores", "the bulk senders of each store have more of the ports with dcqcn than without congestion control", func(at func(p, s, x string) float64) bool {
		return eachStore(func(store string) bool {
			const name = "bulk, share of the ports"
			return at(store, name, BulkDCQCN) > at(store, name, BulkNone) && at(store, name, BulkPFC) > at(store, name, BulkNone)
		})
	}},
	{"stores", "irn: each store has more operations than with go-back-N, both without congestion control", func(at func(p, s, x string) float64) bool {
		return eachStore(func(store string) bool {
			const name = "operations, 1000/s"
			return at(store, name, BulkIRN) > at(store, name, BulkNone)
		})
	}},
}

func eachStore(holds func(store string) bool) bool {
	return !slices.ContainsFunc(bulkStores, func(store string) bool { return !holds(store) })
}
