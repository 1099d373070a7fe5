package kv

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// ErrScan means that a scan has returned keys in the wrong order, or more keys than requested.
var ErrScan = errors.New("scan is out of order")

// Scan executes a scan. It records the result for the given keys, which are sorted: a returned key
// as a GET that found its value, a key that the scan passed over as a GET that found nothing. Each
// of these GETs takes place at some moment of the scan; the store does not promise that all of them
// take place at the same moment. Scan records nothing for other keys, which belong to other
// clients.
func (r *Recorded) Scan(keys []uint64, from uint64, n int, deadline clock.Time) error {
	s, ok := r.Store.(Scanner)
	if !ok {
		return errors.New("the store cannot scan")
	}
	type shown struct{ key, number uint64 }
	var list []shown
	began := r.now()
	var call moment
	r.history.guarded(func() { call = r.history.tick(began) })
	err := s.Scan(from, n, func(key uint64, value []byte) bool {
		var number uint64
		var bad error
		if slices.Contains(keys, key) {
			number, bad = CheckValue(key, value)
		}
		if bad == nil && (len(list) == n || key < from || len(list) > 0 && key <= list[len(list)-1].key) {
			bad = ErrScan
		}
		if bad != nil && r.check == nil {
			r.check = bad
		}
		list = append(list, shown{key, number})
		return true
	}, deadline)
	if err != nil {
		// The scan may have returned some keys, but it is not known which other keys it would have
		// returned. So nothing is recorded.
		return err
	}
	end := ^uint64(0)
	if len(list) == n && n > 0 {
		end = list[n-1].key
	}
	ended := r.now()
	for _, key := range keys {
		if key < from || key > end {
			continue
		}
		out := output{outcome: notFound, at: ended}
		if i := slices.IndexFunc(list, func(s shown) bool { return s.key == key }); i >= 0 {
			out = output{outcome: done, value: list[i].number, at: ended}
		}
		r.history.guarded(func() {
			r.history.n++
			r.history.ops[key] = append(r.history.ops[key], operation{
				client: r.client, in: input{kind: opGet, at: began}, out: out, call: call.order, end: r.history.tick(ended).order,
			})
		})
	}
	return nil
}
