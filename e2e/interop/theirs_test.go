package interop_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// theirs is an end on rxe: guest/verbs.py, which executes one JSON object a line.
type theirs struct {
	c net.Conn
	r *bufio.Reader
	// id numbers the requests, because an earlier caller may not have waited for its answer.
	id uint32
}

var _ end = (*theirs)(nil)

// answerLimit is how long the guest may take for a request that does not wait for completions.
const answerLimit = 60 * time.Second

func newTheirs(c net.Conn) *theirs {
	return &theirs{c: c, r: bufio.NewReaderSize(c, 1<<20), id: rand.Uint32()}
}

// call sends a request and decodes the answer. args is a struct or a map.
func (t *theirs) call(do string, args any, patience time.Duration, answer any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	q := map[string]json.RawMessage{} // keeps numbers exact
	if err := json.Unmarshal(raw, &q); err != nil {
		return err
	}
	t.id++
	q["do"] = json.RawMessage(strconv.Quote(do))
	q["id"] = json.RawMessage(strconv.FormatUint(uint64(t.id), 10))
	line, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if err := t.c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := t.c.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("guest: %s: %w", do, err)
	}
	for {
		if line, err = t.r.ReadBytes('\n'); err != nil {
			return fmt.Errorf("guest: %s: %w", do, err)
		}
		var head struct {
			ID    uint32
			Error string
		}
		switch err := json.Unmarshal(line, &head); {
		case err != nil || head.ID != t.id: // the rest of an answer, or the answer to a request whose caller has given up
		case head.Error != "":
			return fmt.Errorf("guest: %s: %s", do, head.Error)
		default:
			return json.Unmarshal(line, answer)
		}
	}
}

func (t *theirs) open(o opening) (a address, err error) {
	return a, t.call("open", o, answerLimit, &a)
}

func (t *theirs) connect(to address, p params) error {
	return t.call("connect", struct {
		address
		params
	}{to, p}, answerLimit, &struct{}{})
}

func (t *theirs) fill(sizes []int, seed int) error {
	return t.call("fill", map[string]any{"sizes": sizes, "seed": seed}, answerLimit, &struct{}{})
}

func (t *theirs) recv(first, count, size int) error {
	return t.call("recv", map[string]any{"first": first, "count": count, "size": size}, answerLimit, &struct{}{})
}

func (t *theirs) run(w work) ([]completion, error) {
	var a struct{ WC []completion }
	patience := answerLimit + time.Duration(w.Limit*float64(time.Second))
	return a.WC, t.call("run", w, patience, &a)
}

func (t *theirs) wait(count int, limit time.Duration) ([]completion, error) {
	var a struct{ WC []completion }
	err := t.call("wait", map[string]any{"count": count, "limit": limit.Seconds()}, limit+answerLimit, &a)
	return a.WC, err
}

func (t *theirs) check(sizes []int, seed int) ([]int, error) {
	var a struct{ Bad []int }
	return a.Bad, t.call("check", map[string]any{"sizes": sizes, "seed": seed, "from": 0}, answerLimit, &a)
}

func (t *theirs) word(store *uint64, count int) ([]uint64, error) {
	q := map[string]any{"count": count}
	if store != nil {
		q["store"] = *store
	}
	var a struct{ Words []uint64 }
	return a.Words, t.call("word", q, answerLimit, &a)
}

func (t *theirs) close() error { return t.call("close", struct{}{}, answerLimit, &struct{}{}) }
