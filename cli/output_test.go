package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// listedAs runs a listing of a value with arguments, and returns what it printed.
func listedAs(t *testing.T, ctx context.Context, v any, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	cmd := &cobra.Command{Use: "list", RunE: func(cmd *cobra.Command, _ []string) error { return printJSON(cmd, v) }}
	listFlags(cmd)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

func TestFormats(t *testing.T) {
	type part struct {
		Name string `json:"name"`
		Big  uint64 `json:"big"`
		In   *part  `json:"in,omitempty"`
	}
	v := map[string]any{"title": "x", "hosts": []part{{"cn0", 1<<64 - 1, nil}, {"ms0, b", 2, &part{"in", 3, nil}}}}
	for _, c := range []struct{ format, want string }{
		{"json", "  \"hosts\": [\n"},
		{"yaml", "hosts:\n- name: cn0\n  big: 18446744073709551615\n"},
		{"csv", "name,big,in.name,in.big\ncn0,18446744073709551615,,\n\"ms0, b\",2,in,3\n"},
		{"jsonpath=$.hosts[*].big", "18446744073709551615\n2\n"},
		{"jsonpath={.hosts[0].name}", "cn0\n"},
		{"jsonpath=hosts[?@.big < 5].name", "ms0, b\n"},
		{"jsonpath=$.title", "x\n"},
		{"jsonpath=$.none", ""},
	} {
		if got, err := listedAs(t, t.Context(), v, "-o", c.format); err != nil || !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.format, err, got, c.want)
		}
	}
	for _, c := range []struct{ format, want string }{
		{"xml", "use table, json, yaml, csv or jsonpath=EXPRESSION"},
		{"wide", "leave -o out"},
		{"jsonpath", "-o jsonpath='$.hosts[*].name'"},
		{"jsonpath=$.[", "jsonpath"},
		{"yaml=x", "use table, json"},
	} {
		if _, err := listedAs(t, t.Context(), v, "-o", c.format); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.format, err, c.want)
		}
	}
	for want, v := range map[string]any{"value\n1\n2\n": []int{1, 2}, "a,b\n1,x y\n": map[string]any{"a": 1, "b": []string{"x", "y"}}, "": []int{}} {
		if got, err := listedAs(t, t.Context(), v, "-o", "csv"); err != nil || got != want {
			t.Errorf("%v: %q, %v, want %q", v, got, err, want)
		}
	}
}

func TestWatch(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 350*time.Millisecond)
	defer stop()
	if got, err := listedAs(t, ctx, 7, "-o", "json", "--watch=100ms"); err != nil || !strings.HasPrefix(got, "7\n7\n") {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := listedAs(t, ctx, 7, "--watch=1ms"); err == nil || !strings.Contains(err.Error(), "100ms or longer") {
		t.Errorf("%v", err)
	}
}

func TestTimeLeft(t *testing.T) {
	for _, c := range []struct {
		took     time.Duration
		n, total int
		want     string
	}{
		{10 * time.Second, 500, 1000, ", 50/s, 10s left"},
		{30 * time.Second, 3, 5, ", 10s each, 20s left"},
		{time.Millisecond, 1, 2, ""},
		{time.Minute, 0, 2, ""},
		{time.Minute, 2, 2, ""},
	} {
		if got := ahead(c.took, c.n, c.total); got != c.want {
			t.Errorf("%v %d of %d: %q, want %q", c.took, c.n, c.total, got, c.want)
		}
	}
}
