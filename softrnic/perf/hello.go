package perf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
)

// hello is what a client asks of a service, as private data of its connection request. Keys are short, because a request
// of the connection manager has little room.
type hello struct {
	// Op is open, or close for a connection that the client has finished with. A close needs no connection: it is
	// answered by a refusal with the reason closedReason.
	Op string `json:"o"`
	// ID names the connection to be closed, or, for open, to be ended first.
	ID uint64 `json:"id,omitempty"`
	// Owner answers for the connection, or is asked about; see MemoryHello.
	Owner uint32 `json:"w,omitempty"`
	// Bytes of memory wanted for this connection alone; 0: the service's own region.
	Bytes int `json:"n,omitempty"`
	// Mode: "" nothing, sink: receive and verify, echo: receive, verify and send back.
	Mode string `json:"m,omitempty"`
	// Size of a message, Recvs to post, Seed of the pattern, for the modes.
	Size   int    `json:"s,omitempty"`
	Recvs  int    `json:"r,omitempty"`
	Seed   uint64 `json:"d,omitempty"`
	Verify bool   `json:"v,omitempty"`
	// Lanes, if any, are the queue pairs that carry the messages; see lanes.
	Lanes string `json:"t,omitempty"`
	// silent says that there were no private data: the client does not know this protocol and never says that it is done.
	silent bool
}

// slot is what a receive holds, in bytes.
func (h *hello) slot() int {
	l, err := parseLanes(h.Lanes)
	if err != nil {
		return h.Size
	}
	return h.Size + l.room()
}

// laneCount is how many queue pairs take receives.
func (h *hello) laneCount() int {
	l, err := parseLanes(h.Lanes)
	if err != nil {
		return 1
	}
	return l.n
}

// Modes of a connection.
const (
	modeSink = "sink"
	modeEcho = "echo"
)

// Operations of a hello.
const (
	opOpen  = "open"
	opClose = "close"
	// opFence ends the connections of an owner, opWho asks for it; the answers are refusals, too.
	opFence = "fence"
	opWho   = "who"
	// opRetire fences all owners there were, so that nobody of them is mistaken for one of those to come.
	opRetire = "retire"
)

// closedReason is the refusal that answers a close.
const closedReason = "closed"

// welcome is the server's answer.
type welcome struct {
	ID     uint64 `json:"id"`
	Memory Region `json:"mem"`
	// Report is where the server of a mode counts; see the report offsets.
	Report Region `json:"rep,omitzero"`
	// Locks is memory on the NIC, Boot the life of the service; see Memory.
	Locks Region `json:"lk,omitzero"`
	Boot  uint64 `json:"b,omitempty"`
}

// Region is memory that a peer may reach.
type Region struct {
	Addr uint64 `json:"a"`
	RKey uint32 `json:"k"`
	Len  int    `json:"l"`
}

// Offsets of the words of a report.
const (
	reportReady    = 0  // 1 as soon as receives are posted
	reportCount    = 8  // messages received
	reportBad      = 16 // of these, wrong ones
	reportBadMsg   = 24 // number of the first wrong one
	reportBadByte  = 32 // offset of its first wrong byte
	reportBytes    = 40 // bytes received
	reportSize     = 48
	maxHelloString = 16
)

func (h *hello) encode() []byte {
	b, err := json.Marshal(h)
	if err != nil || len(b) > rdmacm.MaxRequestPrivate {
		panic(fmt.Sprintf("perf: a hello of %d bytes: %v", len(b), err)) // numbers and short words only
	}
	return b
}

// parseHello reads a request; what it returns is in bounds. A client that says nothing, as the switch does, wants a
// connection to the service's own region.
func parseHello(b []byte) (hello, error) {
	var h hello
	if len(b) == 0 {
		return hello{Op: opOpen, silent: true}, nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return hello{}, fmt.Errorf("private data is no request to this service: %w", err)
	}
	switch {
	case h.Op != opOpen && h.Op != opClose && h.Op != opFence && h.Op != opWho && h.Op != opRetire:
		return hello{}, fmt.Errorf("operation %.*q: want open, close, fence, who or retire", maxHelloString, h.Op)
	case (h.Op == opFence || h.Op == opWho) && h.Owner == 0:
		return hello{}, errors.New("owner 0 is nobody")
	case h.Bytes < 0 || h.Bytes > maxBuffer:
		return hello{}, fmt.Errorf("%d bytes of memory: want at most %d", h.Bytes, maxBuffer)
	case h.Mode != "" && h.Mode != modeSink && h.Mode != modeEcho:
		return hello{}, fmt.Errorf("mode %.*q: want sink or echo", maxHelloString, h.Mode)
	case h.Mode != "" && (h.Size < 1 || h.Size > MaxSize || h.Recvs < 1 || h.Recvs > 2*MaxDepth || h.slot() > maxBuffer/h.Recvs/h.laneCount()):
		return hello{}, fmt.Errorf("%d receives of %d bytes: want at most %d bytes together", h.Recvs, h.Size, maxBuffer)
	case h.Lanes != "" && h.Mode == "":
		return hello{}, errors.New("queue pairs of their own are for sink and echo")
	}
	if h.Lanes != "" {
		if _, err := parseLanes(h.Lanes); err != nil {
			return hello{}, err
		}
	}
	return h, nil
}

func (w *welcome) encode() []byte {
	b, err := json.Marshal(w)
	if err != nil || len(b) > rdmacm.MaxReplyPrivate {
		panic(fmt.Sprintf("perf: a welcome of %d bytes: %v", len(b), err)) // numbers only
	}
	return b
}

func parseWelcome(b []byte) (welcome, error) {
	var w welcome
	if err := json.Unmarshal(b, &w); err != nil {
		return welcome{}, fmt.Errorf("the peer's private data is no answer of a perf service: %w", err)
	}
	if w.Memory.Len < 0 || w.Report.Len < 0 || w.Locks.Len < 0 {
		return welcome{}, fmt.Errorf("the peer answered with a region of negative length")
	}
	return w, nil
}
