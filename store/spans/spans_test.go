package spans

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

var about = About{Store: "clover", Workload: "a", Rack: "lab"}

// made are n operations: each has two phases, and every third has failed.
func made(n int) (list []kv.Span) {
	for i := range n {
		at := clock.Time(1e18 + i*1000)
		op := kv.Span{Client: i % 5, Kind: kv.KindUpdate, Key: uint64(i), Begin: at, End: at + 900, RTTs: 2, Retries: 1, Parts: []kv.Part{
			{Phase: kv.PhaseTrip, Begin: at, End: at + 400, Switch: 30}, {Phase: kv.PhaseRPC, Begin: at + 500, End: at + 900},
		}}
		if i%3 == 2 {
			op.Error = "no answer"
		}
		list = append(list, op)
	}
	return list
}

// check reads what a receiver got of n operations.
func check(t *testing.T, got ptrace.Traces, n int) {
	t.Helper()
	if got.SpanCount() != 3*n {
		t.Fatalf("%d spans of %d operations", got.SpanCount(), n)
	}
	r := got.ResourceSpans().At(0)
	if v, _ := r.Resource().Attributes().Get("service.namespace"); v.AsString() != "lab" {
		t.Errorf("%v", r.Resource().Attributes().AsRaw())
	}
	list := r.ScopeSpans().At(0).Spans()
	spans, traces := map[pcommon.SpanID]bool{}, map[pcommon.TraceID]bool{}
	for i := range n {
		op := list.At(3 * i)
		traces[op.TraceID()] = true
		if op.Name() != "update" || !op.ParentSpanID().IsEmpty() || op.TraceID().IsEmpty() || op.EndTimestamp()-op.StartTimestamp() != 900 {
			t.Errorf("operation %d: %s %v", i, op.Name(), op.Attributes().AsRaw())
		}
		if v, _ := op.Attributes().Get("rdmalab.client"); v.Int() != int64(i%5) {
			t.Errorf("client %d of operation %d", v.Int(), i)
		}
		if failed := op.Status().Code() == ptrace.StatusCodeError; failed != (i%3 == 2) || failed && op.Status().Message() != "no answer" {
			t.Errorf("operation %d: status %v", i, op.Status().Message())
		}
		for k, name := range []string{"trip 1", "rpc"} {
			c := list.At(3*i + 1 + k)
			if c.Name() != name || c.ParentSpanID() != op.SpanID() || c.TraceID() != op.TraceID() || c.StartTimestamp() < op.StartTimestamp() || c.EndTimestamp() > op.EndTimestamp() {
				t.Errorf("phase %d of operation %d: %s", k, i, c.Name())
			}
			if v, ok := c.Attributes().Get("rdmalab.switch_ns"); ok != (k == 0) || ok && v.Int() != 30 {
				t.Errorf("phase %d of operation %d: %v", k, i, c.Attributes().AsRaw())
			}
		}
	}
	for i := range list.Len() {
		spans[list.At(i).SpanID()] = true
	}
	if len(traces) != n || len(spans) != 3*n {
		t.Errorf("%d trace IDs and %d span IDs for %d operations", len(traces), len(spans), n)
	}
}

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, made(7), about); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"parentSpanId":"`) || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%.300s", b.String())
	}
	got, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	check(t, got, 7)
}

// A receiver gets all operations at the usual path, some hundreds at a time.
func TestPost(t *testing.T) {
	var requests []ptrace.Traces
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got, uerr := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
		if err != nil || uerr != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			http.Error(w, "what is this", http.StatusUnsupportedMediaType)
			return
		}
		requests = append(requests, got)
	}))
	defer s.Close()
	for _, url := range []string{s.URL, s.URL + "/", s.URL + "/v1/traces"} {
		requests = nil
		if err := Post(context.Background(), url, made(batch+20), about); err != nil || len(requests) != 2 {
			t.Fatalf("%s: %d requests: %v", url, len(requests), err)
		}
		check(t, requests[0], batch)
		if requests[1].SpanCount() != 60 {
			t.Errorf("%d spans at last", requests[1].SpanCount())
		}
	}
	if err := Post(context.Background(), s.URL+"/other", made(1), about); err == nil || !strings.Contains(err.Error(), "what is this") {
		t.Errorf("another path: %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Post(ended, s.URL, made(1), about); err == nil {
		t.Error("posted after the end")
	}
}
