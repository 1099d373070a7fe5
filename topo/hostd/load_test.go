package hostd

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// Loads over both NICs, with arrivals at random times and with a number of READs in flight, make
// READs of all bytes, and leave nothing behind.
func TestLoad(t *testing.T) {
	_, cn, ms := upAs(t, soloRack())
	run := func(l perf.Load) (res perf.LoadResult, err error) {
		l.To, l.Size = []string{"ms0"}, 4096
		now := time.Now()
		l.Begin, l.End, l.Last = now.UnixNano(), now.Add(time.Second).UnixNano(), now.Add(time.Minute).UnixNano()
		err = cn.Call(t.Context(), http.MethodPost, PathLoad, l, &res)
		return res, err
	}
	for name, l := range map[string]perf.Load{
		"1RMA, arrivals":    {Rate: 300},
		"1RMA, in flight":   {Depth: 4, LoadControl: perf.LoadControl{First: 15, TotalDelay: true}},
		"1RMA, open":        {Rate: 300, LoadControl: perf.LoadControl{Open: true}},
		"RoCEv2, arrivals":  {RoCE: true, Rate: 300},
		"RoCEv2, in flight": {RoCE: true, Depth: 4},
	} {
		res, err := run(l)
		if err != nil || len(res.Samples) == 0 || res.Began == 0 {
			t.Errorf("%s: %d READs, %v", name, len(res.Samples), err)
		}
		for _, s := range res.Samples {
			// A host without processor may fail READs that are not tried again.
			if s.Status != "" && !l.Open || s.Took <= 0 || s.At < res.Began {
				t.Fatalf("%s: %+v", name, s)
			}
		}
	}
	if o := status(t, cn).OneRMA; o.Processes != 1 || o.Regions != 0 {
		t.Errorf("left behind: %+v", o)
	}
	if _, err := run(perf.Load{}); err == nil || !strings.Contains(err.Error(), "rate 0, depth 0") {
		t.Error(err)
	}
	if err := ms.Call(t.Context(), http.MethodPost, PathCrashApp, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := run(perf.Load{Depth: 1}); err == nil || !strings.Contains(err.Error(), "memory of") {
		t.Error(err)
	}
}
