package experiment

import (
	"context"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
)

// Platform is a rack on which experiments run: compute hosts with clients, memory servers, a switch
// between them. Its methods put the switch into the state that a load asks for, run the clients,
// and read the counters of NICs and switch over the time that is counted. They return as soon as
// possible when ctx ends, with its error.
type Platform interface {
	// On is OnSim or OnRack.
	On() string
	// Describe describes the platform in a few lines.
	Describe() string
	// Words runs clients that contend for words of memory.
	Words(ctx context.Context, l Words) (WordsResult, error)
	// Clover and Sherman run clients of these stores.
	Clover(ctx context.Context, l Clover) (StoreResult, error)
	Sherman(ctx context.Context, l Sherman) (StoreResult, error)
	// NIC runs one-sided operations and returns how many end in a second. errors.ErrUnsupported: the
	// platform has no such load.
	NIC(ctx context.Context, l NIC) (float64, error)
	// Order measures the order of requests past the switch: the share of requests by their distance,
	// in the order of arrivals at the switch, from the request that reached the server before; 1 is
	// the same order. errors.ErrUnsupported: the platform cannot trace.
	Order(ctx context.Context, l Order) (map[int]float64, error)
	// TreeOperations traces single operations of the tree Sherman. errors.ErrUnsupported: the
	// platform cannot trace.
	TreeOperations(ctx context.Context) ([]Operation, error)
}

// Actions of a switch that a load asks for.
const (
	// Forward is a switch that only forwards.
	Forward = "forward"
	// AsIs leaves the switch as it is; in the simulator it only forwards.
	AsIs = "as-is"
	// ReplaceAtomics is a switch that replaces atomics by WRITEs, Steer one that steers appends and
	// reads of Clover.
	ReplaceAtomics = "atomics"
	Steer          = "steer"
)

// Modes of a switch that replaces or steers: with the holes of the paper closed, and as in the
// paper.
const (
	Hardened  = "hardened"
	Published = "published"
)

// Switch is the state of the switch during a measurement.
type Switch struct {
	// Action is one of the list above; "": Forward. Mode is Hardened or Published; "": Hardened.
	Action, Mode string
	// Misses says how CAS that fail are answered, as in a rule; "": by the server.
	Misses string
	// Steer is what the switch steers: write, read or both. Hot restricts it to so many of the
	// hottest keys; 0: all keys.
	Steer string
	Hot   int
	// LineRate lets the simulated switch keep up with every load, whatever the model says; Direct
	// also takes its delay away, for which there is no source. A rack ignores both.
	LineRate, Direct bool
}

// Mode0 is Mode with its default.
func (s *Switch) Mode0() string {
	if s.Mode == "" {
		return Hardened
	}
	return s.Mode
}

// Words is a load of clients that contend for 64-bit words of one memory server, each with one
// operation in flight.
type Words struct {
	Clients int
	// Locks: the clients take and release locks; otherwise they do CAS on one word.
	Locks bool
	// Words is how many locks there are, and Zipf the skew with which clients choose among them; 0:
	// 1. Only the simulator has more.
	Words int
	Zipf  float64
	// Device puts the words into the memory of the server's NIC.
	Device bool
	// Bits makes locks 0 or 1 and releases CAS, as in the SwordBox paper; otherwise a lock holds a
	// value of its owner.
	Bits   bool
	Switch Switch
	// Seed of the simulated rack; 0: 1.
	Seed uint64
	// Iters is the number of CAS on a rack, Span how long locks are taken on a rack. The simulator
	// has fixed times.
	Iters int
	Span  time.Duration
}

// WordsResult is the outcome of Words.
type WordsResult struct {
	// CAS is the rate of answered CAS, Succeeded the rate of CAS that changed the word or took the
	// lock; both per second.
	CAS, Succeeded float64
	// Replaced is the share of CAS that the server's NIC received as another operation.
	Replaced float64
	// Mean is the mean time from post to completion of a CAS; P50 and P99 are of the time from the
	// first CAS for a lock to the answer of the one that took it.
	Mean, P50, P99 time.Duration
}

// Clover is a load of clients of the store Clover, with one memory server.
type Clover struct {
	Clients int
	// Writes is the percentage of updates; the rest reads. Keys (0: 1024), Value in bytes (0: 104,
	// which fills a node of 128 bytes) and Zipf describe them.
	Writes float64
	Keys   uint64
	Value  int
	Zipf   float64
	// Share is how many clients of a host share a queue pair to the memory server; 0 or 1: each has
	// its own.
	Share  int
	Switch Switch
	// Servers is the number of memory servers; 0: 1. A rack ignores it.
	Servers int
	// Undo takes choices of the model back, in the simulator.
	Undo Choice
	// Pool is the number of nodes of each memory server; 0: as in the published system. A rack ignores
	// it.
	Pool int
	// Seed of the simulated rack; 0: 1.
	Seed uint64
	// Warm is how long clients work before operations are counted, Run how long they are counted;
	// 0: the platform's.
	Warm, Run time.Duration
}

// Choice is a set of choices of the simulator's model of Clover, to be taken back: each bit is the
// model without one of them.
type Choice uint8

// Choices.
const (
	// OldTotals takes the NIC's totals of READs and WRITEs from RedN instead of the authors' data.
	OldTotals Choice = 1 << iota
	// ShortPatience gives an operation up after 10 ms instead of 1 s.
	ShortPatience
	// OtherKeys is 1,024 keys and Zipf 0.99 instead of 1,000 and 1.0.
	OtherKeys
	// OwnCaches gives each client a location cache of its own, instead of one for each machine.
	OwnCaches
	// NoProgram leaves out the time of the client's program.
	NoProgram
	// OneThread has a metadata server of one thread.
	OneThread
	// AllChoices are all of them.
	AllChoices = 1<<iota - 1
)

// Places of Sherman's lock words.
const (
	LocksHost   = "host"
	LocksDevice = "device"
	LocksSwitch = "switch" // in device memory, and the switch replaces their CAS by WRITEs
)

// Sherman is a load of clients of the tree Sherman.
type Sherman struct {
	Clients  int
	Workload kv.Workload
	// Keys are loaded before; 0: 20000. Zipf is the skew.
	Keys uint64
	Zipf float64
	// Locks is a place of lock words; "": LocksDevice. Misses says how the switch answers CAS that
	// fail; "": the server does.
	Locks, Misses string
	// HandOver is sherman.NodeConfig.HandOver. Alone makes each client a compute node with its own
	// cache: clients do not queue on their host, and each requests the lock from the server. Only
	// the simulator supports it.
	HandOver int
	Alone    bool
	// Seed of the simulated rack; 0: 1.
	Seed uint64
	// Run is how long operations are counted; 0: the platform's.
	Run time.Duration
}

// StoreResult is the outcome of a store's workload.
type StoreResult struct {
	kv.Result
	// BytesPerOp is how many bytes the switch received for each counted operation.
	BytesPerOp float64
	// MetaCalls is how many requests clients sent to the metadata server in a second, and
	// MetaHeaders how many headers of nodes it read; 0: they were not counted.
	MetaCalls, MetaHeaders float64
	// Tree sums up the counters of a tree's compute nodes, including the warm-up; nil: they were
	// not read.
	Tree *TreeStats
}

// TreeStats are counts of the compute nodes of a tree.
type TreeStats struct {
	// Acquires counts locks that were taken, HandOvers the part of them that another client of the
	// node handed over, CAS the attempts for the rest.
	Acquires, HandOvers, CAS uint64
	// WaitP99 is the 99th percentile of waits for locks; of several hosts of a rack, the largest.
	WaitP99 time.Duration
}

// Operation has the packets of one operation of a store, from a trace of the links.
type Operation struct {
	Name string
	// RTTs is how often the client sent something after it had received an answer, or for the first
	// time.
	RTTs int
	// Bytes counts the bytes of the IP packets in both directions; Published is the same number for
	// the published formats.
	Bytes, Published int
	// Packets are opcodes, in the order in which they were sent.
	Packets []string
	// ClaimedRTTs and ClaimedBytes are the round trips and bytes that the client itself counts.
	ClaimedRTTs, ClaimedBytes int
}
