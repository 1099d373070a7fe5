package web

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/topo/rackapi"
	"github.com/rdmalab/rdmalab/topo/top"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

// What top draws of a rack that it reads by HTTP is what it draws of the rack itself.
func TestTopReadsTheRackByHTTP(t *testing.T) {
	r := newRig(t, nil)
	at := serve(t, r)
	c, err := rackapi.NewClient("http://" + at + "/#token=" + token)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far := live.Remote(c)(t.Context(), "")
	g, err := r.source.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	near := live.SampleOf(g.State(nil))
	far.At = near.At // of another reading
	if diff := cmp.Diff(near, far); diff != "" || len(far.QPs) != 2 {
		t.Errorf("-itself +by HTTP\n%s", diff)
	}
	style := top.Style{Plain: true}
	if a, b := top.Print(style, &near, &near), top.Print(style, &far, &far); a != b || !strings.Contains(b, "cn0") {
		t.Errorf("drawn\n%s\nby HTTP\n%s", a, b)
	}
	r.absent.Store(true)
	r.source.MaxAge = 0
	if s := live.Remote(c)(t.Context(), ""); !strings.Contains(s.Gone, "is not up") {
		t.Errorf("%+v", s)
	}
}

// Pages do not get the lists, which may be long; who asks for them does.
func TestListsAreForThoseWhoAsk(t *testing.T) {
	r := newRig(t, nil)
	for path, want := range map[string]int{"/api/v1/rack": 0, "/api/v1/rack?detail=true": 2} {
		var got Rack
		w := r.ask("GET", path, "")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Lists.QueuePairs) != want || got.Detail != (want > 0) {
			t.Errorf("%s: %s, %v", path, w.Body, err)
		}
		if strings.Contains(w.Body.String(), "lists") != (want > 0) {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}
