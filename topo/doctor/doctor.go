// Package doctor checks which features of a rack a machine supports, what is missing, and which
// command fixes it.
//
// A Probe is a name and a function that examines a System and returns a Finding. A System is a
// struct of functions by which probes access a machine; Machine returns the System of this machine,
// and tests use their own. Probes undo every change to the machine before they return.
package doctor

import "context"

// State is the result of one check.
type State string

// States of a finding.
const (
	OK       State = "ok"
	Degraded State = "degraded" // rdmalab uses a substitute, or has fewer features
	Missing  State = "missing"
)

type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	// Found describes what the probe found. Means describes the consequence for rdmalab.
	Found string `json:"found"`
	Means string `json:"means"`
	// Fix is the command that fixes the problem, or a hint if no command does; "" if there is no
	// problem.
	Fix string `json:"mend,omitempty"`
	// Required is true if no rack can be brought up while the state of this check is Missing.
	Required bool `json:"required"`
}

// Probe checks one property of a machine.
type Probe struct {
	Name     string
	Required bool
	// Look examines the machine. It sets State, Found, Means and Fix.
	Look func(ctx context.Context, s *System) Finding
}

// Report has the findings of all probes.
type Report struct {
	// Ready is true if a rack can be brought up.
	Ready    bool      `json:"ready"`
	Findings []Finding `json:"findings"`
}

// Examine runs the probes one after the other. They share the results of expensive tests.
func Examine(ctx context.Context, s *System, probes []Probe) Report {
	r := Report{Ready: true, Findings: make([]Finding, 0, len(probes))}
	for _, p := range probes {
		f := p.Look(ctx, s)
		f.Check, f.Required = p.Name, p.Required
		if f.Required && f.State == Missing {
			r.Ready = false
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}

// Lacking returns the names of the required checks that failed.
func (r *Report) Lacking() (names []string) {
	for _, f := range r.Findings {
		if f.Required && f.State == Missing {
			names = append(names, f.Check)
		}
	}
	return names
}

// Probes lists all checks, in the order in which their problems should be fixed.
func Probes() []Probe {
	return []Probe{
		{"root", true, lookRoot},
		{"kernel", false, lookKernel},
		{"processors", false, lookProcessors},
		{"state folder", true, lookFolder},
		{"kernel settings", true, lookSettings},
		{"namespaces", true, lookNamespaces},
		{"user namespaces", false, lookUser},
		{"veth", true, lookVeth},
		{"packet sockets", true, lookPacket},
		{"receive ring", false, lookRing},
		{"direct sending", false, lookBypass},
		{"silencer", false, lookSilencer},
		{"cgroups", false, lookCgroups},
		{"cgroup v1", false, lookOldCgroups},
		{"locked memory", false, lookMemlock},
		{"verbs library", false, lookLibrary},
		{"docker engine", false, lookDocker},
		{"docker compose", false, lookCompose},
		{"podman", false, lookPodman},
		{"qemu", false, lookQEMU},
		{"kvm", false, lookKVM},
		{"tshark", false, lookTshark},
	}
}

func good(found, means string) Finding { return Finding{State: OK, Found: found, Means: means} }

func weaker(found, means, fix string) Finding {
	return Finding{State: Degraded, Found: found, Means: means, Fix: fix}
}

func lacking(found, means, fix string) Finding {
	return Finding{State: Missing, Found: found, Means: means, Fix: fix}
}
