package perf

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// postings records the sizes of posts, and refuses the request with number `bad`.
type postings struct {
	verbs.QP
	sizes []int
	bad   uint64
}

var errBad = errors.New("bad")

func (p *postings) PostSend(list ...verbs.SendWR) error {
	p.sizes = append(p.sizes, len(list))
	for i := range list {
		if list[i].ID == p.bad {
			return &verbs.OpError{Index: i, Err: errBad}
		}
	}
	return nil
}

// Messages over one lane are posted in batches, as those of the other tests are: as many as the
// receives of the server and the depth allow. Those over several lanes take turns. A refused
// message ends the run with the number of those before it.
func TestLanesPostInBatches(t *testing.T) {
	for _, c := range []struct {
		kind              string
		lanes, credits    int
		bad               uint64
		want              []int
		sent, depth, most int
	}{
		{kind: ConnUC, lanes: 1, credits: 1000, bad: 99999, want: []int{32, 32, 6}, sent: 70, depth: 100, most: postBatch},
		{kind: ConnUC, lanes: 1, credits: 40, bad: 99999, want: []int{32, 8}, sent: 40, depth: 100, most: postBatch},
		{kind: ConnRC, lanes: 1, credits: 0, bad: 99999, want: []int{32, 18}, sent: 50, depth: 50, most: postBatch},
		{kind: ConnUC, lanes: 2, credits: 3, bad: 99999, want: []int{1, 1}, sent: 3, depth: 100, most: postBatch},
		{kind: ConnUC, lanes: 1, credits: 3, bad: 99999, want: []int{1, 1, 1}, sent: 3, depth: 100, most: 1},
		{kind: ConnUC, lanes: 1, credits: 1000, bad: 40, want: []int{32, 32}, sent: 40, depth: 100, most: postBatch},
	} {
		cfg := &Config{Iters: 70, Depth: c.depth, SignalEvery: 1}
		f := laneClient{session: &session{cfg: *cfg}, lanes: lanes{kind: c.kind, n: c.lanes}}
		f.credits.total, f.sges = c.credits, make([]verbs.SGE, 4)
		for range c.lanes {
			f.qps, f.posted, f.done = append(f.qps, &postings{bad: c.bad}), append(f.posted, 0), append(f.done, 0)
		}
		var err error
		for err == nil && f.sent < cfg.Iters && f.room(cfg, 4) {
			err = f.post(cfg, 4, c.most)
		}
		if got := f.qps[0].(*postings).sizes[:len(c.want)]; !slices.Equal(got, c.want) || f.sent != c.sent || errors.Is(err, errBad) != (c.bad < 99999) {
			t.Errorf("%+v: posts of %v messages, %d sent, %v", c, got, f.sent, err)
		}
	}
}
