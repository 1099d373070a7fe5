package plugin

import (
	"errors"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// CheckRequest asks for a check of the structure of the tree.
type CheckRequest struct {
	// Unreachable and HalfSplits are how many pages interrupted splits may have left; see
	// check.Config. A negative value allows any number.
	Unreachable int `json:"unreachable"`
	HalfSplits  int `json:"halfSplits"`
	// DeadLocks is how many locks may have dead owners; a negative value allows any number.
	DeadLocks int `json:"deadLocks"`
}

type Checked struct {
	store.Proof
	// Tree is the report of the check; nil if a server's memory was lost.
	Tree *check.Report `json:"tree,omitempty"`
}

// wholePatience is the time limit for reading or loading a whole tree.
const wholePatience = 10 * time.Minute

func (n *node) check(r *http.Request, in CheckRequest) (out Checked, err error) {
	began := time.Now()
	err = n.With(r, "check", func(_ *tree, c *sherman.Client, rt verbs.Runtime) error {
		cfg, err := audit.Config(c, rt.Now().Add(wholePatience))
		if err == nil {
			cfg.Unreachable, cfg.HalfSplits, cfg.DeadLocks = in.Unreachable, in.HalfSplits, in.DeadLocks
			out.Tree, err = check.Check(cfg)
		}
		// Lost memory is a result of the check, not an error of the request. So the verdict on a
		// history that clients have made before the check is shown, too.
		if errors.Is(err, kv.ErrLost) {
			out.Tree, out.Why = nil, err.Error()
			return nil
		}
		if err != nil {
			return err
		}
		if bad := out.Tree.Err(); bad != nil {
			out.Why = bad.Error()
		}
		return nil
	})
	out.Took = time.Since(began)
	return out, err
}
