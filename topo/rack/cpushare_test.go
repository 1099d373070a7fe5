package rack

import "testing"

func TestCPURoot(t *testing.T) {
	for _, c := range []struct {
		list string
		want bool
	}{
		{"", false},
		{"0::/\n", false},
		{"0::/user.slice\n", false},
		{"3:cpuset:/\n1:cpu:/\n0::/rdmalab\n", true},
		{"4:cpu,cpuacct:/\n", true},
		{"4:cpuacct,cpu:/docker/a:b\n", false},
		{"3:cpuset:/x\n1:cpu:/x\n", false},
		{"garbage\n::\n1:cpu\n", false},
	} {
		if got := atCPURoot(c.list); got != c.want {
			t.Errorf("%q: %v, want %v", c.list, got, c.want)
		}
	}
}

// Without the controller, or for a process in a cgroup, nothing is made and nothing fails.
func TestNoCPUShare(t *testing.T) {
	for _, c := range []cpuShare{{}, {dir: t.TempDir() + "/group"}} {
		c.prepare(3)
		c.adopt(1)
		if c.dir != "" && exists(c.dir) {
			t.Errorf("%s was made", c.dir)
		}
		if err := c.clear(); err != nil {
			t.Error(err)
		}
	}
}
