package experiment

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
)

// Platform is a rack on which experiments run: compute hosts with clients, memory servers, and a
// switch between them. Its methods put the switch into the state that a load requires, run the
// clients, and read the counters of NICs and switch over the counted time. When ctx ends, they
// return its error as soon as possible.
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
	// Fusee runs clients of FUSEE. It returns errors.ErrUnsupported if the platform has no such
	// load.
	Fusee(ctx context.Context, l Fusee) (StoreResult, error)
	// Direct runs clients of pDPM-Direct or pDPM-Central. It returns errors.ErrUnsupported if the
	// platform has no such load.
	Direct(ctx context.Context, l Direct) (StoreResult, error)
	// NIC runs one-sided operations and returns how many complete in a second. It returns
	// errors.ErrUnsupported if the platform has no such load.
	NIC(ctx context.Context, l NIC) (float64, error)
	// Order measures how much a server's NIC changes the order of requests, behind a switch that keeps
	// up with every load. Requests are numbered in the order of their arrival at the switch. The
	// distance of an answer is the absolute difference of its request's number and that of the request
	// that was answered just before it: if the order is the same, all distances are 1. The distance is
	// 0 if the client has sent the request more than once. Order returns the share of answers by
	// distance. It returns errors.ErrUnsupported if the platform cannot trace.
	Order(ctx context.Context, l Order) (map[int]float64, error)
	// TreeOperations traces single operations of the tree Sherman. It returns errors.ErrUnsupported
	// if the platform cannot trace.
	TreeOperations(ctx context.Context) ([]Operation, error)
	MemoryUser
	// OneRMA runs NICs without connections. It returns errors.ErrUnsupported if the platform has no
	// such load.
	OneRMA(ctx context.Context, l OneRMA) (OneRMAResult, error)
	// RedN runs programs made of work requests, and their baselines. It returns errors.ErrUnsupported
	// if the platform has no such load.
	RedN(ctx context.Context, l RedN) (RedNResult, error)
	// Memcached makes GETs of a large table of memcached's items, and checks each answer. It returns
	// errors.ErrUnsupported if the platform does not have the load's way.
	Memcached(ctx context.Context, l Memcached) (MemcachedResult, error)
	// Recovery runs one queue pair over a way that loses or reorders packets. It returns
	// errors.ErrUnsupported if the platform has no such load.
	Recovery(ctx context.Context, l Recovery) (RecoveryResult, error)
	// Congestion runs senders that meet in one port of the switch. It returns errors.ErrUnsupported if
	// the platform has no such load.
	Congestion(ctx context.Context, l Congestion) (CongestionResult, error)
	// Scene runs flows between hosts of a rack with the queues of a rack file. It returns
	// errors.ErrUnsupported if the platform is a rack.
	Scene(ctx context.Context, s Scene) (SceneResult, error)
}

// Actions of the switch that a load requires.
const (
	// Forward is a switch that only forwards.
	Forward = "forward"
	// AsIs leaves the switch as it is; in the simulator it only forwards.
	AsIs = "as-is"
	// ReplaceAtomics: the switch replaces atomics by WRITEs. Steer: it steers appends and READs of
	// Clover.
	ReplaceAtomics = "atomics"
	Steer          = "steer"
	// Move: the switch moves requests to connections of its own.
	Move = "move"
)

// Modes of rules by which the switch replaces or steers: Hardened has the holes of the SwordBox
// paper closed, Published works as in the paper.
const (
	Hardened  = "hardened"
	Published = "published"
)

// Switch is the state of the switch during a measurement.
type Switch struct {
	// Action is one of the actions above; "" means Forward. Mode is Hardened or Published; "" means
	// Hardened.
	Action, Mode string
	// Misses is the key misses of a rule: what happens to a CAS that, as the switch knows, will
	// fail. "server": the server answers it; "switch": the switch answers it; "wait": the switch
	// holds it for a while, until it can succeed. "" means "server".
	Misses string
	// Steer is what the switch steers: write, read or both. Hot is the number of hottest keys that
	// are steered; 0 means that all keys are.
	Steer string
	Hot   int
	// If LineRate is true, the simulated switch keeps up with every load, whatever the cost model
	// says. If Direct is true, it adds no delay; the delay of the model has no published source. A
	// rack ignores both.
	LineRate, Direct bool
}

// Mode0 returns Mode, or Hardened if Mode is "".
func (s *Switch) Mode0() string { return cmp.Or(s.Mode, Hardened) }

// Keys returns the value of the key keys of a steering rule. Published rules cannot find hot keys,
// so such a rule lists the s.Hot hottest keys. The workload numbers keys by popularity, so these are
// the keys from 0 on.
func (s *Switch) Keys() string {
	switch {
	case s.Hot == 0:
		return "all"
	case s.Mode != Published:
		return fmt.Sprintf("hot:%d", s.Hot)
	}
	list := make([]string, s.Hot)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return strings.Join(list, ",")
}

// Words is a load of clients that contend for 64-bit words of one memory server, each with one
// operation in flight.
type Words struct {
	Clients int
	// If Locks is true, the clients take and release locks, otherwise they do CAS on one word.
	Locks bool
	// Words is the number of locks, 0 means 1. Zipf is the skew with which clients choose among
	// them. Only the simulator has several.
	Words int
	Zipf  float64
	// Device puts the words into the memory of the server's NIC.
	Device bool
	// If Bits is true, a lock is 0 or 1 and CAS releases it, as in the SwordBox paper. If it is
	// false, a lock has a value that names its owner.
	Bits bool
	// Acks is the key acks of the server's NIC: how many requests an ACK answers at most; 0 means those that
	// arrive together. Only the simulator has it.
	Acks   int
	Switch Switch
	// Seed of the simulated rack; 0 means 1.
	Seed uint64
	// Iters is the number of CAS on a rack. Span is how long locks are taken on a rack, by its clock;
	// 0 means a time that the platform chooses, or with Short a fifth of it. The simulator has fixed
	// times.
	Iters int
	Span  time.Duration
	Short bool
}

type WordsResult struct {
	// CAS is the rate of CAS that were answered. Succeeded is the rate of CAS that changed the word
	// or took the lock, both per second.
	CAS, Succeeded float64
	// Replaced is the share of CAS that arrived at the server's NIC as other operations.
	Replaced float64
	// Mean is set without Locks: the mean time from post to completion of a CAS; on a rack the number
	// of clients divided by CAS. P50 and P99 are set with Locks: percentiles of the time from the
	// first CAS for a lock to the answer of the CAS that took it.
	Mean, P50, P99 time.Duration
	// Acks, AckBytes and AckEntries are set for a switch with published rules: ACKs of the server, their
	// bytes, and map entries that the switch reads for responses, for each CAS. AckEntriesMost is the
	// largest number of map entries of one ACK.
	Acks, AckBytes, AckEntries, AckEntriesMost float64
}

// Clover is a load of clients of the store Clover.
type Clover struct {
	Clients int
	// Writes is the percentage of updates; all other operations are reads. Keys (0 means 1024),
	// Value in bytes (0 means 104, which fills a node of 128 bytes) and Zipf describe the keys.
	Writes float64
	Keys   uint64
	Value  int
	Zipf   float64
	// Share is how many clients of a host share a queue pair to the memory server; 0 or 1: each has
	// its own.
	Share int
	// If Merge is true, the clients of a host report their appends to the metadata server together,
	// otherwise each reports its own.
	Merge  bool
	Switch Switch
	// Start is how the store is started, if it is not up.
	Start CloverStart
	// Servers is the number of memory servers, at least as many as copies; 0 means 1. A rack
	// ignores it.
	Servers int
	// Undo is the set of choices of the simulator's model that are replaced by their alternatives.
	Undo Choice
	// Pool is the number of nodes of each memory server; 0 means as in the published system. A rack
	// ignores it.
	Pool int
	// Bulk is what is beside the clients, with a switch that forwards. On a rack, which must be in slow motion, it says
	// only whether there are bulk senders.
	Bulk Bulk
	// Seed of the simulated rack; 0 means 1.
	Seed uint64
	// Warm is how long clients work before operations are counted. Run is how long they are
	// counted; 0 means the platform's default.
	Warm, Run time.Duration
}

// Choice is a set of choices of the simulator's model of Clover. Each bit replaces one choice by
// its alternative.
type Choice uint8

// The choices of the model that a load can replace. Each comment describes the alternative.
const (
	// OldTotals takes the NIC's maximum rates of READs and WRITEs from the RedN paper instead of
	// the data of SwordBox's authors.
	OldTotals Choice = 1 << iota
	// ShortPatience: an operation is given up after 10 ms instead of 1 s.
	ShortPatience
	// OtherKeys: there are 1,024 keys with Zipf 0.99 instead of 1,000 with 1.0.
	OtherKeys
	// OwnCaches: each client has its own location cache, instead of one for each machine.
	OwnCaches
	// NoProgram: the client's program takes no time.
	NoProgram
	// OneThread: the metadata server has one thread.
	OneThread
	// OldShortcuts: clients use shortcuts as the published client does
	// (clover.Config.PublishedShortcuts).
	OldShortcuts
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
	// Keys is the number of keys that are loaded before the clients work; 0 means 20000. Zipf is
	// the skew.
	Keys uint64
	Zipf float64
	// Locks says where the lock words are (LocksHost, LocksDevice or LocksSwitch). "" means where
	// the design that Step names has them: for Sherman itself, LocksDevice. Misses has the meaning
	// of Switch.Misses.
	Locks, Misses string
	// HandOver is sherman.NodeConfig.HandOver. If Alone is true, each client is a compute node with
	// its own cache, and requests every lock from the server. If it is false, the clients of a host
	// are one compute node, in which they queue for locks. Only the simulator supports Alone.
	HandOver int
	Alone    bool
	// Step names one of sherman.Steps; "" means Sherman. Servers is the number of memory servers in
	// the simulator; 0 means 1.
	Step    string
	Servers int
	// Bulk is as in Clover.
	Bulk Bulk
	// Seed of the simulated rack; 0 means 1.
	Seed uint64
	// Warm is how long the clients work before operations are counted, Run is how long they are
	// counted; 0 means the platform's default. Slots, unless 0, replaces the cost model's slots for
	// atomics. Only the simulator supports Warm and Slots.
	Warm, Run time.Duration
	Slots     int
}

// Direct is a load of clients of pDPM-Direct. All keys are loaded before the clients work, and
// clients know where the keys are. If Central is not 0, it is a load of pDPM-Central, whose
// coordinator has Central cores. Value is the length of values in bytes, Servers the number of
// memory servers, Zipf the skew. Warm and Run are as in Clover.
type Direct struct {
	Clients   int
	Central   int
	Workload  kv.Workload
	Keys      uint64
	Value     int
	Zipf      float64
	Servers   int
	Warm, Run time.Duration
}

// Visit is clients that join during a run and leave before it ends.
type Visit struct {
	// Guests is their number. They join at the beginning of step Join, and leave at the end of step Leave.
	Guests, Join, Leave int
}

// Fusee is a load of clients of FUSEE. All keys are loaded before the clients work, and clients
// remember the slots of the keys.
type Fusee struct {
	Clients  int
	Workload kv.Workload
	Keys     uint64
	// If Own is true, each client uses keys of its own, one after the other. If it is false, all
	// clients use all keys with the skew Zipf.
	Own  bool
	Zipf float64
	// Value is the length of values in bytes; 0 means that an object is one unit.
	Value int
	// Machines is the number of compute hosts, 0 means 7. Servers is that of memory servers, 0
	// means 2.
	Machines, Servers int
	// Replicas and IndexReplicas are as in fusee.FormatConfig; 0 means 2 of objects, 1 of the
	// index.
	Replicas, IndexReplicas int
	// If NoCache is true, clients do not remember the slots of keys. Threshold is
	// fusee.Config.Threshold; 0 means 0.1.
	NoCache   bool
	Threshold float64
	// Switch is the state of the switch: it forwards, or ReplaceAtomics works on the index.
	Switch Switch
	// Steps divides Run into steps of equal length, numbered from 0; 0 means 1.
	Steps int
	// Visit has clients that are there in some steps only.
	Visit Visit
	// Bulk is as in Clover.
	Bulk Bulk
	// Seed of the simulated rack; 0 means 1.
	Seed uint64
	// Warm is how long clients work before operations are counted, and Run how long they are
	// counted; 0 means the platform's default.
	Warm, Run time.Duration
}

type StoreResult struct {
	kv.Result
	// Nodes says what became of the store's nodes while operations were counted; nil means that they
	// were not counted.
	Nodes *Nodes
	// BytesPerOp is how many bytes the switch received for each counted operation.
	BytesPerOp float64
	// MetaCalls is how many requests a second clients sent to the metadata server. MetaHeaders is
	// how many headers of nodes the server read a second; 0 means that they were not counted.
	MetaCalls, MetaHeaders float64
	// Absorbed is how many appends the switch absorbed (swordbox/cloversteer) while operations were
	// counted; nil means that this was not counted.
	Absorbed *uint64
	// Tree sums up the counters of a tree's compute nodes, including the warm-up; nil means that
	// they were not read.
	Tree *TreeStats
	// Links has the bytes a second that each memory server sent, by number; nil means that they
	// were not counted.
	Links []float64
	// Steps has the operations a second in each step of the run (Fusee.Steps); nil means that they
	// were not counted.
	Steps []float64
	// Bulk is the share of the ports' rate that the payload of bulk senders had, on average of the memory servers; on a
	// rack and in its twin that of the frames that they sent.
	Bulk float64
	// Restless: the run need not be steady, because the figure shows what happens without control.
	Restless bool
	// Checked is how many operations a history has that was checked, Unexplained why it is not linearizable, or why
	// that could not be decided. Only loads with Bulk are checked, in the simulator.
	Checked     int
	Unexplained string
	// Twin is, for a load with Bulk on a rack, what the same clients have shown in the simulator with the rack's file.
	Twin *StoreResult
}

// failures counts the operations that failed, had a wrong value or found no key.
func (r *StoreResult) failures() uint64 { return r.Failed + r.Wrong + r.NotFound }

// TreeStats has sums over the compute nodes of a tree.
type TreeStats struct {
	// Acquires counts the locks that were taken. HandOvers counts those that another client of the
	// same node handed over. CAS counts the attempts to take locks by CAS.
	Acquires, HandOvers, CAS uint64
	// WaitP99 is the 99th percentile of the time that clients waited for locks; on a rack, the
	// largest of all hosts.
	WaitP99 time.Duration
}

// Operation has the packets of one operation of a store, from a trace of the links.
type Operation struct {
	Name string
	// RTTs is the number of round trips. The client's first packet begins one, and so does each
	// packet of the client that directly follows an answer in the trace.
	RTTs int
	// Bytes is the length of the IP packets in both directions; Published is the length that they
	// would have in the formats of Sherman's paper.
	Bytes, Published int
	// Packets are opcodes, in the order in which they were sent.
	Packets []string
	// ClaimedRTTs and ClaimedBytes are the round trips and bytes that the client itself has
	// counted, for comparison with the trace.
	ClaimedRTTs, ClaimedBytes int
}

// StallTimeout is the ACK timeout of clients of experiments, as a code: 0.54 s, so that with all
// retries a NIC or the switch may be silent for 4.3 s. On a rack, many clients and other programs
// keep the processors busy, and a NIC that did not run for a second is no reason to end an
// experiment. If a packet is lost, a client waits for this timeout only if the loss was at the end
// of a message; otherwise a sequence NAK reports it.
const StallTimeout = 17
