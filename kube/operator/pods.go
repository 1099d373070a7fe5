package operator

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// readyPort is the port at which leaves and hosts say that they are ready.
const readyPort = 7470

// leafCPU and hostCPU are what leaves and hosts request of a node's processors. They take more when they have work. Without a request
// a container gets next to nothing while others of its node compute: then RDMA's retries run out, and connections break.
var leafCPU, hostCPU = resource.MustParse("100m"), resource.MustParse("20m")

// container returns the container of a leaf or a host: root without other capabilities than those that a NIC or a switch
// needs, with nothing that it may write but its state.
func (w *wanted) container(name string, cpu resource.Quantity, args ...string) corev1.Container {
	if w.logs != "" && w.logs != "text" {
		args = append(args, "--log-format", w.logs)
	}
	return corev1.Container{
		Name: name, Image: w.image, Args: args, ImagePullPolicy: cmp.Or(w.pull, corev1.PullIfNotPresent),
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: cpu},
			Limits:   corev1.ResourceList{v1alpha1.ResourcePort: resource.MustParse("1")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW", "NET_ADMIN", "IPC_LOCK"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(readyPort)}},
			PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 2,
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "rack", MountPath: "/etc/rdmalab", ReadOnly: true}, {Name: "state", MountPath: "/run/rack"}, {Name: "tmp", MountPath: "/tmp"},
		},
	}
}

// pod returns the Pod of a container on one of some nodes. It stays on a node that does not answer: a partition of the
// cluster's network is no death of the host, and its memory must outlive it.
func (w *wanted) pod(c corev1.Container, nodes []string) corev1.PodSpec {
	memory := corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("64Mi"))}
	return corev1.PodSpec{
		Containers: []corev1.Container{c}, TerminationGracePeriodSeconds: ptr(int64(1)), AutomountServiceAccountToken: ptr(false), EnableServiceLinks: ptr(false),
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes},
			}}},
		}}},
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		},
		Volumes: []corev1.Volume{
			{Name: "rack", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: w.content()}}}},
			{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &memory}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("16Mi"))}}},
		},
	}
}
