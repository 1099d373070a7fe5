package kubectl

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/version"
)

// status is what the command status says.
type status struct {
	Name       string             `json:"name"`
	Namespace  string             `json:"namespace"`
	Phase      v1alpha1.Phase     `json:"phase"`
	Conditions []metav1.Condition `json:"conditions"`
	Leaves     []leafStatus       `json:"leaves"`
	Hosts      []hostStatus       `json:"hosts"`
	Lost       []string           `json:"lost,omitempty"`
}

// leafStatus is a leaf of status, hostStatus a host.
type leafStatus struct {
	Name     string                `json:"name"`
	Node     string                `json:"node"`
	Pod      string                `json:"pod,omitempty"`
	Ready    bool                  `json:"ready"`
	Restarts int32                 `json:"restarts"`
	Version  string                `json:"version,omitempty"`
	Refused  string                `json:"refused,omitempty"`
	Trunks   []v1alpha1.LinkStatus `json:"trunks,omitempty"`
}

type hostStatus struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	Leaf     string `json:"leaf"`
	Node     string `json:"node,omitempty"`
	Pod      string `json:"pod,omitempty"`
	Address  string `json:"address"`
	Ready    bool   `json:"ready"`
	Restarts int32  `json:"restarts"`
}

func (o *options) statusCmd() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "status RACK", Short: "Show the phase, the conditions, and each leaf and host with its node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return badUse("-o %.20q: use json, or leave it out", output)
			}
			c, err := o.open()
			if err != nil {
				return err
			}
			v, err := c.look(cmd.Context(), args[0])
			if v == nil {
				return err
			}
			s := v.status()
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(s)
			}
			return s.write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json: one object, for programs")
	return cmd
}

// status makes the status. Of a Rack whose text is refused it has no hosts.
func (v *view) status() *status {
	s := &status{Name: v.rack.Name, Namespace: v.namespace, Phase: v.rack.Status.Phase, Conditions: v.rack.Status.Conditions, Lost: v.rack.Status.Lost}
	where := make(map[string]string)
	for i := range v.leaves {
		l := &v.leaves[i]
		where[l.Spec.Leaf] = l.Spec.Node
		ls := leafStatus{Name: l.Spec.Leaf, Node: l.Spec.Node, Version: l.Status.Version, Refused: l.Status.Refused, Trunks: l.Status.Trunks}
		if p := v.pods[ls.Name]; p != nil {
			ls.Pod, ls.Ready, ls.Restarts = p.Name, ready(p), restarts(p)
		}
		s.Leaves = append(s.Leaves, ls)
	}
	if v.spec == nil {
		return s
	}
	for i := range v.spec.Hosts {
		h := &v.spec.Hosts[i]
		hs := hostStatus{Name: h.Name, Role: string(h.Role), Leaf: v.spec.LeafOf(h), Address: h.IPv4.String()}
		hs.Node = where[hs.Leaf]
		if p := v.pods[h.Name]; p != nil {
			hs.Pod, hs.Ready, hs.Restarts = p.Name, ready(p), restarts(p)
		}
		s.Hosts = append(s.Hosts, hs)
	}
	return s
}

// write writes the status as text.
func (s *status) write(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "rack %s/%s is %s\n\nCONDITION\tSTATUS\tREASON\tMESSAGE\n", s.Namespace, s.Name, cmp.Or(string(s.Phase), "not seen by the operator yet"))
	for i := range s.Conditions {
		c := &s.Conditions[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Type, c.Status, c.Reason, strings.ReplaceAll(c.Message, "\n", "; "))
	}
	fmt.Fprint(t, "\nLEAF\tNODE\tREADY\tRESTARTS\tVERSION\tTRUNKS\n")
	for i := range s.Leaves {
		l := &s.Leaves[i]
		var trunks []string
		for _, k := range l.Trunks {
			state := "up"
			if !k.Up {
				state = cmp.Or(k.Trouble, "down")
			}
			trunks = append(trunks, k.Name+" "+state)
		}
		if l.Refused != "" {
			trunks = []string{"refused: " + l.Refused}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", l.Name, l.Node, word(l.Pod, l.Ready), l.Restarts, cmp.Or(l.Version, "-"), cmp.Or(strings.Join(trunks, ", "), "-"))
	}
	fmt.Fprint(t, "\nHOST\tROLE\tNODE\tLEAF\tADDRESS\tREADY\tRESTARTS\n")
	for i := range s.Hosts {
		h := &s.Hosts[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", h.Name, h.Role, cmp.Or(h.Node, "-"), h.Leaf, h.Address, word(h.Pod, h.Ready), h.Restarts)
	}
	if len(s.Lost) > 0 {
		fmt.Fprintf(t, "\nlost with their node: %s\n", strings.Join(s.Lost, " "))
	}
	return t.Flush()
}

// word says whether a Pod is ready.
func word(pod string, ready bool) string {
	switch {
	case pod == "":
		return "no Pod"
	case ready:
		return "yes"
	}
	return "no"
}

// warn says that leaves have another version than the plugin: then a command may not understand their answers.
func (v *view) warn(errOut io.Writer) {
	for i := range v.leaves {
		if at := v.leaves[i].Status.Version; at != "" && at != version.String() {
			fmt.Fprintf(errOut, "%s: %s of the rack has version %s, and this plugin %s: what one of them does not know is refused\n", name, v.leaves[i].Spec.Leaf, at, version.String())
			return
		}
	}
}
