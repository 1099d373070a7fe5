package web

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/topo/rackapi"
)

// document has what the test reads of an OpenAPI file.
type document struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		Summary   string
		Security  []map[string][]string
		Responses map[string]json.RawMessage
	}
	Components struct {
		Schemas map[string]struct {
			Properties           map[string]json.RawMessage
			Required             []string
			AdditionalProperties *bool
		}
	}
}

func parse(t *testing.T) (d document) {
	t.Helper()
	if err := json.Unmarshal(OpenAPI, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOpenAPIDescribesTheRoutes(t *testing.T) {
	d := parse(t)
	r := newRig(t, nil)
	var want, got []string
	for _, route := range r.routes() {
		want = append(want, route.pattern)
	}
	for p, ops := range d.Paths {
		for method, op := range ops {
			pattern := strings.ToUpper(method) + " " + p
			got = append(got, pattern)
			if op.Summary == "" || op.Responses["200"] == nil || op.Responses["default"] == nil {
				t.Errorf("%s lacks a summary or an answer", pattern)
			}
			if pattern == "GET /api/v1/events" {
				continue // does not end
			}
			// A request without the token is refused where the file says that it needs one, and nowhere else.
			filled := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(p, "cn0")
			w := r.ask(strings.ToUpper(method), filled, "")
			if refused := w.Code == 401; refused != (len(op.Security) > 0) {
				t.Errorf("%s without the token: status %d, and security is %v", pattern, w.Code, op.Security)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("routes %q\nfile   %q", want, got)
	}
}

func TestOpenAPIDescribesTheTypes(t *testing.T) {
	d := parse(t)
	types := map[string]reflect.Type{"Error": reflect.TypeFor[struct {
		Error string `json:"error"`
	}]()}
	for _, v := range []any{
		Rack{}, Node{}, rackapi.Fault{}, Counter{}, Counters{}, rackapi.Table{}, rackapi.Connection{}, rackapi.Lists{}, rackapi.QueuePair{}, rackapi.Word{}, rackapi.Key{}, Point{}, PointOf{}, RecordRequest{}, Recording{}, FaultRequest{}, ActionRequest{}, LinkRequest{}, Done{},
	} {
		types[reflect.TypeOf(v).Name()] = reflect.TypeOf(v)
	}
	if a, b := slices.Sorted(maps.Keys(types)), slices.Sorted(maps.Keys(d.Components.Schemas)); !slices.Equal(a, b) {
		t.Errorf("types %q, schemas %q", a, b)
	}
	for name, typ := range types {
		s := d.Components.Schemas[name]
		var fields, required []string
		for _, f := range reflect.VisibleFields(typ) {
			tag, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			if tag == "" {
				continue
			}
			fields = append(fields, tag)
			if rest == "" {
				required = append(required, tag)
			}
		}
		slices.Sort(fields)
		slices.Sort(required)
		slices.Sort(s.Required)
		if got := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(fields, got) {
			t.Errorf("%s has the fields %q, its schema %q", name, fields, got)
		}
		if !slices.Equal(required, s.Required) {
			t.Errorf("%s always has %q, its schema says %q", name, required, s.Required)
		}
		if strings.HasSuffix(name, "Request") != (s.AdditionalProperties != nil && !*s.AdditionalProperties) {
			t.Errorf("%s: requests refuse further fields, and only these", name)
		}
	}
}

func TestReferencesLeadSomewhere(t *testing.T) {
	d := parse(t)
	refs := regexp.MustCompile(`"#/components/schemas/([A-Za-z]+)"`).FindAllSubmatch(OpenAPI, -1)
	if len(refs) == 0 {
		t.Fatal("the file has no references")
	}
	for _, m := range refs {
		if _, ok := d.Components.Schemas[string(m[1])]; !ok {
			t.Errorf("there is no schema %s", m[1])
		}
	}
}

// The page uses nothing from elsewhere, and its policy forbids scripts and styles inside of it.
func TestPageIsSelfContained(t *testing.T) {
	imports := regexp.MustCompile(`(?:from|src=|href=)\s*['"]\.?/?([^'"#]+)['"]`)
	const namespace = "http://www.w3.org/2000/svg"
	page, err := fs.Sub(files, "page")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, nil)
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	entries, err := fs.ReadDir(page, ".")
	if err != nil || len(entries) < 5 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		b, err := fs.ReadFile(page, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), namespace, "")
		if strings.Contains(text, "://") || strings.Contains(text, "innerHTML") || strings.Contains(text, "eval(") || strings.Contains(text, " style=") || strings.Contains(text, " onclick=") {
			t.Errorf("%s refers to another server, or has a script or a style that the policy forbids", e.Name())
		}
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			if w := r.ask("GET", "/"+m[1], ""); w.Code != 200 && path.Ext(m[1]) != "" {
				t.Errorf("%s refers to %s, which is not served (%d)", e.Name(), m[1], w.Code)
			}
		}
		name := "/" + e.Name()
		if name == "/index.html" {
			name = "/"
		}
		if w := r.ask("GET", name, ""); w.Code != 200 || w.Header().Get("Content-Type") != kinds[path.Ext(e.Name())] {
			t.Errorf("%s: status %d, %s", name, w.Code, w.Header().Get("Content-Type"))
		}
	}
}
