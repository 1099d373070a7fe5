package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Check returns an error if the request is not valid. The daemon calls it before it opens a client
// for the request.
func (in *OpRequest) Check() error {
	if in.Op == "scan" && (in.N < 1 || in.N > kv.MaxScan) {
		return control.Errorf(http.StatusBadRequest, "scan of %d records: want 1 to %d", in.N, kv.MaxScan)
	}
	return nil
}

// Run executes the operation with client c of store s. The Answer has Cost and Took even if the
// operation fails.
func (in *OpRequest) Run(s *Store, c kv.Store, rt verbs.Runtime) (out Answer, err error) {
	patience := in.Patience
	if patience <= 0 {
		patience = Patience
	}
	began := rt.Now()
	err = in.run(s, c, &out, began.Add(patience))
	out.Cost, out.Took = s.cost(c), rt.Now().Sub(began)
	return out, err
}

func (in *OpRequest) run(s *Store, c kv.Store, out *Answer, deadline clock.Time) (err error) {
	upserter, upserts := c.(kv.Upserter)
	scanner, scans := c.(kv.Scanner)
	switch {
	case in.Op == "get":
		out.Value, err = c.Get(in.Key, nil, deadline)
	case in.Op == "put":
		err = c.Put(in.Key, in.Value, deadline)
		if errors.Is(err, kv.ErrNotFound) {
			err = fmt.Errorf("%w; put replaces values: %s", err, s.howToMake())
		}
	case in.Op == "insert":
		err = c.Insert(in.Key, in.Value, deadline)
	case in.Op == "delete":
		err = c.Delete(in.Key, deadline)
	case in.Op == "upsert" && upserts:
		err = upserter.Upsert(in.Key, in.Value, deadline)
	case in.Op == "scan" && scans:
		err = scanner.Scan(in.Key, in.N, func(key uint64, value []byte) bool {
			out.Records = append(out.Records, Record{key, slices.Clone(value)})
			return true
		}, deadline)
	default:
		err = control.Errorf(http.StatusBadRequest, "%s has no operation %.20q", s.Name, in.Op)
	}
	if errors.Is(err, kv.ErrTooLarge) {
		err = fmt.Errorf("%w%s", err, s.HowToFit())
	}
	return err
}

// howToMake returns a hint: the command that gives a new key a value.
func (s *Store) howToMake() string {
	if s.Upserts {
		return fmt.Sprintf("`rdmalab %s upsert` gives a key a value whether it has one or not", s.Name)
	}
	return fmt.Sprintf("`rdmalab %s insert` gives a new key a value", s.Name)
}

// Ended returns an error if the job's context has ended, and nil otherwise.
func Ended(ctx context.Context, job string) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the %s was ended: %w", job, context.Cause(ctx))
}
