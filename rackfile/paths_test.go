package rackfile

import "testing"

func TestPaths(t *testing.T) {
	p := PathsOf("r")
	for got, want := range map[string]string{
		p.Netns("cn0"): "/run/rdmalab/r/netns/cn0", p.Socket("cn0"): "/run/rdmalab/r/sock/cn0.sock",
		p.Log("cn0"): "/run/rdmalab/r/log/cn0.log", p.Lock(): "/run/rdmalab/r.lock", p.Spec(): "/run/rdmalab/r/rack.json",
	} {
		if got != want {
			t.Errorf("path %s, want %s", got, want)
		}
	}
}
