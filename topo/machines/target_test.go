package machines

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]target{
		"user root\nhostname M1.Lab.\nport 22\n":                     {host: "m1.lab", port: "22"},
		"hostname fd00:0:0::1\nport 2222\nproxyjump gate\n":          {host: "fd00::1", port: "2222", jump: "gate"},
		"hostname ::ffff:10.0.0.1\nport 22\nproxycommand nc %h %p\n": {host: "10.0.0.1", port: "22", proxy: "nc %h %p"},
	} {
		if got, ok := parseTarget(text); !ok || got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "hostname", "user root\n"} {
		if got, ok := parseTarget(text); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// Two names of one machine are refused, two machines behind different gates are not.
func TestDistinct(t *testing.T) {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("no ssh: apt install openssh-client")
	}
	dir := t.TempDir()
	const config = "Host alias\nHostName 10.0.0.1\nHost far\nHostName 10.0.0.1\nProxyJump gate\nHost here\nHostName 10.0.0.2\nPort 2222\n"
	script := "#!/bin/sh\nexec " + ssh + " -F " + dir + "/config \"$@\"\n"
	if os.WriteFile(dir+"/config", []byte(config), 0o600) != nil || os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o755) != nil {
		t.Fatal("cannot write")
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for second, same := range map[string]bool{
		"ssh://root@alias": true, "ssh://ALIAS": false, "ssh://other@10.0.0.1:22": true, "ssh://root@far": false, "ssh://root@10.0.0.1:2222": false,
		"ssh://root@10.0.0.2": false, "ssh://here": false,
	} {
		r := &rackfile.Rack{Name: "t"}
		r.Machines = rackfile.Machines{{Name: "m1", SSH: "ssh://root@10.0.0.1"}, {Name: "m2", SSH: second}, {Name: "m3", SSH: "ssh://root@10.0.0.3"}}
		err := Distinct(t.Context(), r)
		if (err != nil) != same {
			t.Errorf("%s: %v", second, err)
		}
		if err != nil && !strings.Contains(err.Error(), "machines m1 (ssh://root@10.0.0.1) and m2 ("+second+") are one for ssh, 10.0.0.1 port 22") {
			t.Errorf("%s: %v", second, err)
		}
	}
	t.Setenv("PATH", "/nowhere")
	if err := Distinct(t.Context(), &rackfile.Rack{Name: "t", Slice: rackfile.Slice{Machines: rackfile.Machines{{Name: "m1", SSH: "ssh://a"}, {Name: "m2", SSH: "ssh://a"}}}}); err != nil {
		t.Errorf("without ssh: %v", err)
	}
}
