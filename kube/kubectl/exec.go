package kubectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// envImage is the variable that names the image of programs if --image does not.
const envImage = "RDMALAB_IMAGE"

func (o *options) execCmd() *cobra.Command {
	image := os.Getenv(envImage)
	cmd := &cobra.Command{
		Use: "exec RACK HOST --image IMAGE -- PROGRAM [ARG…]", DisableFlagsInUseLine: true,
		Short: "Run a program of an image on the NIC of a host, in a Pod of its own that goes with it", Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash != 2 {
				return badUse("write: kubectl rdmalab exec RACK HOST --image IMAGE -- PROGRAM")
			}
			if image == "" {
				return badUse("name the image that has the program, by --image or the variable %s: the hosts' own image has none", envImage)
			}
			c, err := o.open()
			if err != nil {
				return err
			}
			v, err := c.look(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, err := v.pod(args[1]); err != nil {
				return err
			}
			if v.spec.IsSwitch(args[1]) {
				return badUse("%s is a leaf: programs run on hosts: %v", args[1], v.spec.HostNames())
			}
			return v.exec(cmd, args[1], image, args[2:])
		},
	}
	cmd.Flags().StringVar(&image, "image", image, "image of the program, which is on the host's node or in a registry (environment "+envImage+")")
	return cmd
}

// userID is the user as whom programs run.
const userID = 1000

// podFor makes the Pod of a program: a user's Pod as in docs/guide/kubernetes.md, in the namespace of the rack.
func (v *view) podFor(host, image string, argv []string) *corev1.Pod {
	yes, no, user, now := true, false, int64(userID), int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.namespace, GenerateName: v.rack.Name + "-exec-",
			Annotations: map[string]string{v1alpha1.AnnotationRack: v.namespace + "/" + v.rack.Name, v1alpha1.AnnotationHost: host},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &now, AutomountServiceAccountToken: &no,
			NodeSelector: map[string]string{corev1.LabelHostname: v.pods[host].Spec.NodeName},
			Containers: []corev1.Container{{
				Name: "program", Image: image, Command: argv,
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceNIC: resource.MustParse("1")}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, RunAsNonRoot: &yes, RunAsUser: &user, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
		},
	}
}

// exec runs a program, prints what it prints, and removes its Pod.
func (v *view) exec(cmd *cobra.Command, host, image string, argv []string) (err error) {
	p := v.podFor(host, image, argv)
	if err := v.client.Create(cmd.Context(), p); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), crashWait)
		defer cancel()
		if gone := v.client.Delete(ctx, p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(gone) != nil {
			err = errors.Join(err, fmt.Errorf("the Pod %s stays: %w", p.Name, gone))
		}
	}()
	begun := func(p *corev1.Pod) bool { return running(p) || ended(p) != nil }
	if err := v.await(cmd.Context(), p, begun); err != nil {
		return err
	}
	if err := v.logs(cmd.Context(), p, &corev1.PodLogOptions{Follow: true}, cmd.OutOrStdout()); err != nil {
		return err
	}
	if err := v.await(cmd.Context(), p, func(p *corev1.Pod) bool { return ended(p) != nil }); err != nil {
		return err
	}
	end := ended(p)
	if end.Reason == "StartError" || end.Reason == "ContainerCannotRun" {
		return fmt.Errorf("the program did not start: %s", end.Message)
	}
	if end.ExitCode != 0 {
		return exitCode(end.ExitCode)
	}
	return nil
}

// ended returns how the container of a Pod has ended; nil if it has not.
func ended(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if len(p.Status.ContainerStatuses) == 0 {
		return nil
	}
	return p.Status.ContainerStatuses[0].State.Terminated
}

// refusedReasons are why a container waits for what will not come.
var refusedReasons = map[string]bool{"ErrImagePull": true, "ImagePullBackOff": true, "ErrImageNeverPull": true, "InvalidImageName": true, "CreateContainerConfigError": true, "RunContainerError": true}

// await reads a Pod until it is as wanted.
func (c *cluster) await(ctx context.Context, p *corev1.Pod, as func(p *corev1.Pod) bool) error {
	for {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if as(p) {
			return nil
		}
		for i := range p.Status.ContainerStatuses {
			if w := p.Status.ContainerStatuses[i].State.Waiting; w != nil && refusedReasons[w.Reason] {
				return fmt.Errorf("the program does not start: %s: %s", w.Reason, w.Message)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(crashLook):
		}
	}
}
