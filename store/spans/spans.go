// Package spans gives operations of stores as OpenTelemetry spans: one trace for each operation,
// with a span for each of its phases. They go as JSON to a file, or to a receiver over HTTP.
//
// Source: OTLP specification 1.9 (OTLP/HTTP, and its JSON encoding of trace and span IDs).
package spans

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// About says what the operations are of: attributes of all spans. Rack is "" for a run in virtual
// time.
type About struct{ Store, Workload, Rack string }

// path is where receivers of OTLP over HTTP take traces.
const path = "/v1/traces"

// patience is how long a receiver may take to answer.
const patience = 10 * time.Second

// traces makes a trace of each operation. The ID of a trace is made from the client, the key and the times of
// the operation.
func traces(list []kv.Span, of About) ptrace.Traces {
	t := ptrace.NewTraces()
	r := t.ResourceSpans().AppendEmpty()
	about := r.Resource().Attributes()
	about.PutStr("service.name", "rdmalab")
	if of.Rack != "" {
		about.PutStr("service.namespace", of.Rack)
	}
	scope := r.ScopeSpans().AppendEmpty()
	scope.Scope().SetName("github.com/rdmalab/rdmalab/store")
	for i := range list {
		operation(scope.Spans(), &list[i], uint64(i), of)
	}
	return t
}

// operation adds the spans of an operation. n is its number among all of them.
func operation(to ptrace.SpanSlice, op *kv.Span, n uint64, of About) {
	trace, root := traceOf(op), spanOf(n, 0)
	s := begin(to, op.Kind.String(), op.Begin, op.End)
	s.SetTraceID(trace)
	s.SetSpanID(root)
	s.SetKind(ptrace.SpanKindClient)
	a := s.Attributes()
	a.PutStr("db.system.name", of.Store)
	a.PutStr("db.operation.name", op.Kind.String())
	a.PutStr("rdmalab.workload", of.Workload)
	a.PutInt("rdmalab.client", int64(op.Client))
	a.PutInt("rdmalab.key", int64(op.Key))
	a.PutInt("rdmalab.round_trips", int64(op.RTTs))
	a.PutInt("rdmalab.retries", int64(op.Retries))
	if op.Error != "" {
		s.Status().SetCode(ptrace.StatusCodeError)
		s.Status().SetMessage(op.Error)
	}
	if op.More > 0 {
		a.PutInt("rdmalab.phases_left_out", int64(op.More))
	}
	for i := range op.Parts {
		p := &op.Parts[i]
		c := begin(to, p.Phase.String(), p.Begin, p.End)
		c.SetTraceID(trace)
		c.SetSpanID(spanOf(n, uint64(i+1)))
		c.SetParentSpanID(root)
		c.SetKind(ptrace.SpanKindInternal)
		if p.Switch > 0 {
			c.Attributes().PutInt("rdmalab.switch_ns", int64(p.Switch))
		}
	}
}

func begin(to ptrace.SpanSlice, name string, from, until clock.Time) ptrace.Span {
	s := to.AppendEmpty()
	s.SetName(name)
	s.SetStartTimestamp(pcommon.Timestamp(from))
	s.SetEndTimestamp(pcommon.Timestamp(until))
	return s
}

// traceOf returns the trace ID of an operation. A client has one operation at a time.
func traceOf(op *kv.Span) (id pcommon.TraceID) {
	h := fnv.New128a()
	_, _ = fmt.Fprintln(h, op.Client, op.Kind, op.Key, int64(op.Begin), int64(op.End)) // writes to a hash do not fail
	copy(id[:], h.Sum(nil))
	return id
}

// spanOf returns the ID of a span in the trace of the nth operation. It is not 0, which means no span.
func spanOf(n, part uint64) (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], (n+1)<<16|part)
	return id
}

// Write writes the operations to w: one JSON document, as the collector's receiver of files reads it.
func Write(w io.Writer, list []kv.Span, of About) error {
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces(list, of))
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// batch is how many operations go to a receiver in one request.
const batch = 500

// Post sends the operations to the receiver of OTLP over HTTP at url. Without a path, url gets the
// usual one, /v1/traces.
func Post(ctx context.Context, url string, list []kv.Span, of About) error {
	if scheme, rest, _ := strings.Cut(url, "://"); !strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
		url = scheme + "://" + strings.TrimSuffix(rest, "/") + path
	}
	t := ptrace.ProtoMarshaler{}
	for len(list) > 0 {
		n := min(batch, len(list))
		body, err := t.MarshalTraces(traces(list[:n], of))
		if err != nil {
			return err
		}
		if err := post(ctx, url, body); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func post(ctx context.Context, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // a partial text is better than none
		return fmt.Errorf("%s answered %s: %.200q", url, resp.Status, said)
	}
	return nil
}
