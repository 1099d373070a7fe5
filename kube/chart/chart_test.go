// Package chart tests the Helm chart, which has no Go of its own, with the libraries of Helm.
package chart

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/util/yaml"
)

type object = map[string]any

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load reads the chart as Helm does.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(".")
	must(t, err)
	must(t, c.Validate())
	return c
}

// values returns values in which some are set: paths with dots, which must be in values.yaml.
func values(t *testing.T, c *chart.Chart, set map[string]any) object {
	t.Helper()
	v := object{}
	for path, value := range set {
		if c.Values == nil || at(object(c.Values), path) == nil {
			t.Fatalf("values.yaml has no %s", path)
		}
		in, words := v, strings.Split(path, ".")
		for _, w := range words[:len(words)-1] {
			if in[w] == nil {
				in[w] = object{}
			}
			in = in[w].(object)
		}
		in[words[len(words)-1]] = value
	}
	return v
}

// objects parses documents of YAML, by their kinds and names.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	list := make(map[string]object)
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return list
		}
		must(t, err)
		if o == nil {
			continue
		}
		name := o["kind"].(string) + " " + o["metadata"].(object)["name"].(string)
		if list[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		list[name] = o
	}
}

// release renders the chart as `helm install` does, and checks the values by the schema.
func release(t *testing.T, set map[string]any) (files map[string]string, err error) {
	t.Helper()
	c := load(t)
	v, err := chartutil.ToRenderValues(c, values(t, c, set), chartutil.ReleaseOptions{Name: "lab", Namespace: "default", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(c, v)
}

// render renders the chart, which must work, and parses it.
func render(t *testing.T, set map[string]any) map[string]object {
	t.Helper()
	files, err := release(t, set)
	must(t, err)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b.WriteString("\n---\n" + files[name])
	}
	return objects(t, b.String())
}

func installed(t *testing.T) map[string]object {
	t.Helper()
	text, err := os.ReadFile("../install.yaml")
	must(t, err)
	return objects(t, string(text))
}

// With its default values the chart is what kube/install.yaml is.
func TestDefaults(t *testing.T) {
	got, want := render(t, nil), installed(t)
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s: %v, want %v", name, got[name], want[name])
		}
	}
	if len(got) != len(want) || len(want) < 10 {
		t.Errorf("%d objects, want %d: %v", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}
}

// at returns what is at a path of an object; a word that is a number is an index.
func at(v any, path string) any {
	for w := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case object:
			v = x[w]
		case []any:
			n, err := strconv.Atoi(w)
			if err != nil || n >= len(x) {
				return nil
			}
			v = x[n]
		default:
			return nil
		}
	}
	return v
}

// Other values change what they are about, and nothing else.
func TestValues(t *testing.T) {
	const operator, agent = "Deployment rdmalab-operator", "DaemonSet rdmalab-node"
	text := func(v any) string { b, err := json.Marshal(v); must(t, err); return string(b) }
	for _, c := range []struct {
		set    map[string]any
		want   map[string]string // JSON by object and path
		others bool              // further objects may change
	}{
		{set: map[string]any{"image.name": "registry.example/kube:v1", "image.pullPolicy": "Always"}, want: map[string]string{
			operator + "/spec.template.spec.containers.0.image":           `"registry.example/kube:v1"`,
			operator + "/spec.template.spec.containers.0.imagePullPolicy": `"Always"`,
			operator + "/spec.template.spec.containers.0.args":            `["operator","--image","registry.example/kube:v1","--pull-policy","Always"]`,
			agent + "/spec.template.spec.containers.0.image":              `"registry.example/kube:v1"`,
			agent + "/spec.template.spec.containers.0.imagePullPolicy":    `"Always"`,
		}},
		{set: map[string]any{"logFormat": "json"}, want: map[string]string{
			operator + "/spec.template.spec.containers.0.args": `["operator","--image","rdmalab.local/kube:dev","--log-format","json"]`,
			agent + "/spec.template.spec.containers.0.args":    `["agent","--log-format","json"]`,
		}},
		{set: map[string]any{"agent.nodeSelector": object{"rdma": "yes"}, "agent.tolerations": []any{}}, want: map[string]string{
			agent + "/spec.template.spec.nodeSelector": `{"rdma":"yes"}`,
			agent + "/spec.template.spec.tolerations":  `[]`,
		}},
		{set: map[string]any{"agent.cniConfig": "/var/net.d", "agent.cniBin": "/var/cni bin"}, want: map[string]string{
			agent + "/spec.template.spec.volumes.0.hostPath.path": `"/var/net.d"`,
			agent + "/spec.template.spec.volumes.1.hostPath.path": `"/var/cni bin"`,
		}},
		{set: map[string]any{"operator.nodeSelector": object{"a": "b"}, "operator.tolerations": []any{object{"key": "x", "operator": "Exists"}}}, want: map[string]string{
			operator + "/spec.template.spec.nodeSelector":  `{"a":"b"}`,
			operator + "/spec.template.spec.tolerations.2": `{"key":"x","operator":"Exists"}`,
		}},
		{others: true, set: map[string]any{"namespace": "elsewhere"}, want: map[string]string{
			operator + "/metadata.namespace": `"elsewhere"`, agent + "/metadata.namespace": `"elsewhere"`,
			"Namespace elsewhere/metadata.labels":                                `{"pod-security.kubernetes.io/enforce":"privileged"}`,
			"ClusterRoleBinding rdmalab-operator/subjects.0.namespace":           `"elsewhere"`,
			"RoleBinding rdmalab-node/subjects.0.namespace":                      `"elsewhere"`,
			"RoleBinding rdmalab-operator/metadata.namespace":                    `"elsewhere"`,
			"ServiceAccount rdmalab-node/metadata.namespace":                     `"elsewhere"`,
			"Role rdmalab-node/metadata.namespace":                               `"default"`,
			"CustomResourceDefinition racks.rdmalab.io/spec.names.kind":          `"Rack"`,
			"ValidatingAdmissionPolicyBinding rdmalab-leaf/spec.policyName":      `"rdmalab-leaf"`,
			"ServiceAccount rdmalab-operator/metadata.namespace":                 `"elsewhere"`,
			"Role rdmalab-operator/metadata.namespace":                           `"elsewhere"`,
			"CustomResourceDefinition rackleaves.rdmalab.io/spec.names.singular": `"rackleaf"`,
		}},
	} {
		got, before := render(t, c.set), render(t, nil)
		touched := map[string]bool{}
		for place, want := range c.want {
			name, path, _ := strings.Cut(place, "/")
			touched[name] = true
			if v := text(at(got[name], path)); v != want {
				t.Errorf("%v: %s is %s, want %s", c.set, place, v, want)
			}
		}
		for name := range before {
			if !c.others && !touched[name] && !reflect.DeepEqual(before[name], got[name]) {
				t.Errorf("%v changes %s", c.set, name)
			}
		}
		if all := text(got); c.others && strings.Contains(all, "rdmalab-system") {
			t.Errorf("%v: rdmalab-system is still there: %s", c.set, all)
		}
	}
}

// The schema knows each value, and refuses others.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("values.schema.json")
	must(t, err)
	var schema object
	must(t, json.Unmarshal(text, &schema))
	var same func(path string, schema, values object)
	same = func(path string, schema, values object) {
		if schema["additionalProperties"] != false {
			t.Errorf("%s: unknown keys are not refused", path)
		}
		known := schema["properties"].(object)
		for name := range known {
			if _, ok := values[name]; !ok && name != "global" { // Helm gives each chart a value of that name
				t.Errorf("values.yaml has no %s.%s", path, name)
			}
		}
		for name, v := range values {
			s, ok := known[name].(object)
			if !ok {
				t.Errorf("the schema has no %s.%s", path, name)
				continue
			}
			if inner, ok := v.(object); ok && s["$ref"] == nil {
				same(path+"."+name, s, inner)
			}
		}
	}
	same("values", schema, load(t).Values)
}

// Helm refuses what the schema does not allow.
func TestRefused(t *testing.T) {
	for want, set := range map[string]map[string]any{
		"/namespace":           {"namespace": "No_Name"},
		"/image/name":          {"image.name": "two words"},
		"/image/pullPolicy":    {"image.pullPolicy": "Sometimes"},
		"/logFormat":           {"logFormat": "xml"},
		"/agent/cniBin":        {"agent.cniBin": "relative"},
		"/agent/nodeSelector":  {"agent.nodeSelector": object{"a": 1}},
		"/operator/toleration": {"operator.tolerations": []any{"all"}},
		"'colour' not allowed": {"image": object{"colour": "red"}},
	} {
		if _, err := release(t, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, not %s", set, err, want)
		}
	}
}

// The chart says to Helm on which clusters it works: those of the guide.
func TestVersionOfTheCluster(t *testing.T) {
	for version, want := range map[string]bool{"v1.31.9": false, "v1.32.0": true, "v1.34.4-eks-1": true} {
		if got := chartutil.IsCompatibleRange(load(t).Metadata.KubeVersion, version); got != want {
			t.Errorf("%s: compatible is %v", version, got)
		}
	}
}
